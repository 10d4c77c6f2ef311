package main

import (
	"fmt"
	"strings"

	"svc.dev/svc/svclet/config"
)

// svclet returns the reference of svclet's settings.
func svclet() (string, error) {
	var b strings.Builder
	b.WriteString(`# Settings of svclet

<!-- Generated from the table of settings by make generate; do not edit. -->

[The node agent](../svclet.md) explains how to run svclet and where settings come from. A deprecated flag works, and logs which field of the configuration file to set
instead. Unless stated otherwise, flags and fields have the meaning and default of kubelet's of the same name; kubelet's names of flags are accepted, too.

`)
	for _, section := range config.Sections() {
		fmt.Fprintf(&b, "## %s\n\n", section.Title)
		if section.Settings[0].Later != "" {
			later(&b, section.Settings)
			continue
		}
		b.WriteString("| flag | field | type | default | |\n|---|---|---|---|---|\n")
		for i := range section.Settings {
			s := &section.Settings[i]
			kind, byDefault := s.Value()
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", flagsOf(s), code(s.Field), kind, code(byDefault), cell(s.Description()))
		}
		b.WriteString("\n")
	}
	gates(&b)
	return b.String(), nil
}

// flagsOf returns the names of a setting's flag.
func flagsOf(s *config.Setting) string {
	if s.Flag == "" {
		return ""
	}
	names := code("--" + s.Flag)
	for _, also := range s.Also {
		names += ", " + code("--"+also)
	}
	if s.Deprecated {
		names += " (deprecated)"
	}
	return names
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func later(b *strings.Builder, settings []config.Setting) {
	b.WriteString("The flags do not exist. In a configuration file, the fields may be empty, have a value listed here, or have kubelet's default.\n\n")
	b.WriteString("| flag | field | accepted values | reason |\n|---|---|---|---|\n")
	for i := range settings {
		s := &settings[i]
		var harmless []string
		for _, value := range s.Harmless {
			harmless = append(harmless, code(value))
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", flagsOf(s), code(s.Field), strings.Join(harmless, "<br>"), cell(s.Later))
	}
	b.WriteString("\n")
}

func gates(b *strings.Builder) {
	b.WriteString("## Feature gates\n\n`--feature-gates` and `featureGates` take these names, `AllAlpha` and `AllBeta`. Those with an effect change what svclet does. The others are accepted, " +
		"so that all components of a cluster can have the same gates; their features either behave as in Kubernetes 1.36 (sidecar containers, for instance) or are not implemented yet.\n\n")
	b.WriteString("| gate | stage | default | effect |\n|---|---|---|---|\n")
	for _, gate := range config.AllGates() {
		fmt.Fprintf(b, "| %s | %s | %t | %s |\n", code(gate.Name), gate.Stage, gate.Default, gate.Effect)
	}
}
