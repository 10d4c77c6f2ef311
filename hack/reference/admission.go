package main

import (
	"fmt"
	"strings"

	"svc.dev/svc/apiserver/admission/plugins"
)

// admissionPlugins returns the reference of the admission plugins.
func admissionPlugins() (string, error) {
	var b strings.Builder
	b.WriteString(`# Admission plugins

<!-- Generated from the list of plugins by make generate; do not edit. -->

They run in this order, whatever the order in the flags is: first all that change objects, then all that validate them.
` + "`--enable-admission-plugins` and `--disable-admission-plugins`" + ` name plugins that differ from the default. [Admission](../admission.md)
explains limits, quotas and pod security.

| plugin | default | what it does |
|---|---|---|
`)
	for _, p := range plugins.All(plugins.Settings{}) {
		state := "off"
		if p.On {
			state = "on"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", p.Name, state, cell(p.Does))
	}
	return b.String(), nil
}
