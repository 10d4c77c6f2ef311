package config

import (
	"slices"
)

// Setting is a flag, a field of the configuration, or both.
type Setting struct {
	// Flag is the flag's name, Short its letter; Also are kubelet's names for it.
	Flag  string
	Short string
	Also  []string
	// Field is the field's path in the configuration ("authentication.webhook").
	Field string
	// Deprecated reports that the flag is deprecated: in favor of the field, or
	// without a replacement if there is none (the D of document 3).
	Deprecated bool
	// Usage describes the setting in a sentence or two.
	Usage string
	// Rule is the validation rule; nil accepts any value of the type.
	Rule *Rule
	// Separator is between the keys and the values of pairs; empty means "=".
	Separator string
	// NoEffect says why the setting is accepted and has no effect.
	NoEffect string
	// fallback is the default of a flag without effect; all others have theirs from
	// [Default] and [DefaultFlags].
	fallback any
}

// Section is a section of the help.
type Section struct {
	Title    string
	Settings []Setting
}

// Sections returns all settings, in the order of the help.
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
		{"Exclusive resources", allocationSettings()},
		{"Eviction", evictionSettings()},
		{"Shutdown of the machine", shutdownSettings()},
		{"Container logs", containerLogSettings()},
		{"API server", apiSettings()},
		{"Process and machine", processSettings()},
		{"Logs of svclet", logSettings()},
		{"Without effect", ignoredSettings()},
	}
}

// All returns the settings of all sections.
func All() []Setting {
	var all []Setting
	for _, section := range Sections() {
		all = append(all, section.Settings...)
	}
	return all
}

// names returns the flag's names, svclet's own first.
func (s *Setting) names() []string {
	if s.Flag == "" {
		return nil
	}
	return append([]string{s.Flag}, s.Also...)
}

// title returns the name of a setting in messages, by its origin: a flag or a
// file.
func (s *Setting) title(byFlag bool) string {
	switch {
	case byFlag && s.Field != "":
		return "--" + s.Flag + " (" + s.Field + ")"
	case byFlag:
		return "--" + s.Flag
	case s.Flag != "":
		return s.Field + " (--" + s.Flag + ")"
	}
	return s.Field
}

// ofFlag returns the setting of a flag, by any of its names.
func ofFlag(all []Setting, name string) *Setting {
	for i := range all {
		if name != "" && (all[i].Flag == name || slices.Contains(all[i].Also, name)) {
			return &all[i]
		}
	}
	return nil
}

// ofField returns the setting of a field, or of the field that contains it.
func ofField(all []Setting, path string) *Setting {
	for i := range all {
		if field := all[i].Field; field != "" && within(path, field) {
			return &all[i]
		}
	}
	return nil
}

// within reports whether a path is a field's or a part of that field.
func within(path, field string) bool {
	if len(path) < len(field) || path[:len(field)] != field {
		return false
	}
	return len(path) == len(field) || path[len(field)] == '.' || path[len(field)] == '['
}
