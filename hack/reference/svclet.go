package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apigates "svc.dev/svc/apiserver/gates"
	"svc.dev/svc/controllers"
	"svc.dev/svc/internal/featuregates"
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
		b.WriteString("| flag | field | type | default | |\n|---|---|---|---|---|\n")
		for i := range section.Settings {
			s := &section.Settings[i]
			kind, byDefault := s.Value()
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", flagsOf(s), code(s.Field), kind, code(byDefault), cell(s.Description()))
		}
		b.WriteString("\n")
	}
	b.WriteString("[Feature gates](feature-gates.md) lists the names that `--feature-gates` and `featureGates` take.\n")
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

// featureGates returns the reference of the feature gates.
func featureGates() (string, error) {
	var b strings.Builder
	b.WriteString(`# Feature gates

<!-- Generated from the list of gates by make generate; do not edit. -->

` + "`svc up`, `svc apiserver`, `svc controller-manager` and `svclet` accept all of these names in `--feature-gates`, as Kubernetes spells them, too (`KubeletTracing`), and `AllAlpha` and `AllBeta`: " +
		"all components of a cluster can have the same gates. A gate that a program does not act on is accepted with a warning; its feature is always on, is not implemented, or belongs to another program. " +
		"A feature in GA is on: `true` is accepted with a warning, `false` is an error. Stages and defaults are those of release 1.28; " +
		"with another `--release`, the gates of `svc up` and `svc apiserver` are [those of that release](#gates-of-each-release).\n\n")
	b.WriteString("| gate | stage | default | acted on by | effect in svclet |\n|---|---|---|---|---|\n")
	for _, gate := range featuregates.All() {
		var by []string
		if apigates.Acts(gate.Name) {
			by = append(by, "svc apiserver")
		}
		if slices.Contains(controllers.Gates(), gate.Name) {
			by = append(by, "svc controller-manager")
		}
		if config.ActsOn(gate.Name) {
			by = append(by, "svclet")
		}
		fmt.Fprintf(&b, "| %s | %s | %t | %s | %s |\n", code(gate.Name), gate.Stage, gate.Default, strings.Join(by, ", "), config.GateEffect(gate.Name))
	}
	b.WriteString("\nThe API server also has gates of its own, which switch off layers that exist for speed or memory: ")
	for i, feature := range apigates.Own() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(code(string(feature)))
	}
	b.WriteString(" ([decisions](../decisions/README.md)).\n")
	histories, err := featuregates.Histories()
	if err != nil {
		return "", err
	}
	b.WriteString("\n## Gates of each release\n\nWith `--release`, the API server accepts the gates that this release of kube-apiserver has; " +
		"`on` are those that are on by default, and `locked` those that cannot be changed. Of these, the API server acts on those with *yes*: it drops [fields](../releases.md#feature-gates) " +
		"of features that are off, does not serve a kind, subresource or form of discovery, refuses [values](../releases.md#feature-gates), or restricts nodes, or one of its libraries acts on the gate.\n\n| gate | releases | acts |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(histories)) {
		acts := ""
		if apigates.Acts(featuregates.Own(name)) {
			acts = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", code(featuregates.Own(name)), strings.NewReplacer("=", " ", ",", " ", " ", "; ").Replace(histories[name].String()), acts)
	}
	return b.String(), nil
}
