package main

import (
	"fmt"
	"strings"

	"svc.dev/svc/svclet/config"
)

// svclet describes what can be set of svclet.
func svclet() (string, error) {
	var b strings.Builder
	b.WriteString(`# Settings of svclet

<!-- Generated from the table of settings by make generate; do not edit. -->

[The node agent](../svclet.md) says how to run svclet and where settings come from. A deprecated flag works, and logs which field of the configuration file to set
instead. Flags and fields mean and default to what kubelet's of the same name do, where nothing else is said; kubelet's names of flags are taken, too.

`)
	for _, section := range config.Sections() {
		fmt.Fprintf(&b, "## %s\n\n", section.Title)
		if section.Settings[0].Later != "" {
			later(&b, section.Settings)
			continue
		}
		b.WriteString("| flag | field | takes | default | |\n|---|---|---|---|---|\n")
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

// flagsOf are the names of a setting's flag.
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
	b.WriteString("The flags do not exist. The fields may be set, in a file, to nothing or to what stands here, and to the default of kubelet.\n\n")
	b.WriteString("| flag | field | may be | because |\n|---|---|---|---|\n")
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
	b.WriteString("## Feature gates\n\n`--feature-gates` and `featureGates` take these names, `AllAlpha` and `AllBeta`. svclet acts on those with an effect. The others are known, " +
		"so that all parts of a cluster can be given the same ones; what they stand for behaves in svclet as in Kubernetes 1.36, sidecar containers for instance, or is not there yet.\n\n")
	b.WriteString("| gate | stage | default | effect |\n|---|---|---|---|\n")
	for _, gate := range config.AllGates() {
		fmt.Fprintf(b, "| %s | %s | %t | %s |\n", code(gate.Name), gate.Stage, gate.Default, gate.Effect)
	}
}
