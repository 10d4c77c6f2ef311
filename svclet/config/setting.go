package config

import (
	"slices"
)

// Setting is one thing that can be set: by a flag, by a field of the
// configuration, or by either.
type Setting struct {
	// Flag is the flag's name, Short its letter; Also are kubelet's names of it.
	Flag  string
	Short string
	Also  []string
	// Field is the field's path in the configuration ("authentication.webhook").
	Field string
	// Deprecated says that the flag is deprecated: in favour of the field, or,
	// without one, for good (the D of document 3).
	Deprecated bool
	// Usage says what is set, in a sentence or two.
	Usage string
	// Rule is what values must be like; nil for anything of the type.
	Rule *Rule
	// NoEffect says why it may be set but nothing comes of it.
	NoEffect string
	// Later says what svclet does not do yet, and the setting would be of. Its
	// flag does not exist, and its field may only have the values of Harmless
	// (JSON): those of which a kubelet would do nothing else.
	Later    string
	Harmless []string
	// fallback is the default of a flag of which nothing comes; all others have
	// theirs from [Default] and [DefaultFlags].
	fallback any
}

// Section is a part of the help.
type Section struct {
	Title    string
	Settings []Setting
}

// Sections is everything that can be set, in the order of the help.
func Sections() []Section {
	return []Section{
		{"Mode", modeSettings()},
		{"Node", nodeSettings()},
		{"Static pods", sourceSettings()},
		{"Server", serverSettings()},
		{"Authentication and authorization", authSettings()},
		{"TLS", tlsSettings()},
		{"Container runtime and images", runtimeSettings()},
		{"Pods", podSettings()},
		{"Name resolution and network", networkSettings()},
		{"Resources", resourceSettings()},
		{"Container logs", containerLogSettings()},
		{"API server", apiSettings()},
		{"Process and machine", processSettings()},
		{"Logs of svclet", logSettings()},
		{"Without effect", idleSettings()},
		{"Not there yet", laterSettings()},
	}
}

// All are the settings of all sections.
func All() []Setting {
	var all []Setting
	for _, section := range Sections() {
		all = append(all, section.Settings...)
	}
	return all
}

// names are the flag's, its own first.
func (s *Setting) names() []string {
	if s.Flag == "" {
		return nil
	}
	return append([]string{s.Flag}, s.Also...)
}

// title is how messages name the setting that came from a flag, or from a file.
func (s *Setting) title(byFlag bool) string {
	switch {
	case byFlag && s.Field != "":
		return "--" + s.Flag + " (" + s.Field + ")"
	case byFlag:
		return "--" + s.Flag
	case s.Flag != "" && s.Later == "":
		return s.Field + " (--" + s.Flag + ")"
	}
	return s.Field
}

// ofFlag finds the setting of a flag, by any of its names.
func ofFlag(all []Setting, name string) *Setting {
	for i := range all {
		if name != "" && (all[i].Flag == name || slices.Contains(all[i].Also, name)) {
			return &all[i]
		}
	}
	return nil
}

// ofField finds the setting of a field, or of what it is a part of.
func ofField(all []Setting, path string) *Setting {
	for i := range all {
		if field := all[i].Field; field != "" && within(path, field) {
			return &all[i]
		}
	}
	return nil
}

// within says whether a path is a field's or a part of that field.
func within(path, field string) bool {
	if len(path) < len(field) || path[:len(field)] != field {
		return false
	}
	return len(path) == len(field) || path[len(field)] == '.' || path[len(field)] == '['
}
