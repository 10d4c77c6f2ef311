package openapi

import (
	"slices"

	"k8s.io/kube-openapi/pkg/common"
)

// GetOpenAPIDefinitions makes all definitions.
func GetOpenAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	definitions := map[string]common.OpenAPIDefinition{}
	for name, make := range makers() {
		definitions[name] = make(ref)
	}
	return definitions
}

// Definitions returns the definitions of the named models and of all that they
// refer to; without names, all. Unknown names are ignored.
func Definitions(names ...string) common.GetOpenAPIDefinitions {
	if len(names) == 0 {
		return GetOpenAPIDefinitions
	}
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		all := makers()
		definitions := map[string]common.OpenAPIDefinition{}
		for open := slices.Clone(names); len(open) > 0; {
			name := open[len(open)-1]
			open = open[:len(open)-1]
			make, ours := all[name]
			if _, made := definitions[name]; made || !ours {
				continue
			}
			definitions[name] = make(ref)
			open = append(open, definitions[name].Dependencies...)
		}
		return definitions
	}
}
