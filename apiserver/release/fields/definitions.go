package fields

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"svc.dev/svc/internal/releases"
)

// Definitions returns OpenAPI definitions without the fields, and the values of
// enumerations, that the release lacks, and with those that only it has.
func (f *Fields) Definitions(all func(models ...string) common.GetOpenAPIDefinitions) func(models ...string) common.GetOpenAPIDefinitions {
	if f == nil {
		return all
	}
	return func(models ...string) common.GetOpenAPIDefinitions {
		definitions := all(models...)
		return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
			made := definitions(ref)
			for name, definition := range made {
				if t := releases.FindType(typeOfModel(name)); t != nil {
					made[name] = f.without(definition, t, ref)
				}
			}
			return made
		}
	}
}

// model matches the package, the version and the type of a model: core, v1 and Pod of
// io.k8s.api.core.v1.Pod, or of the older form with slashes.
var model = regexp.MustCompile(`([^./]+)[./]([^./]+)\.([^./]+)$`)

func typeOfModel(name string) string {
	return model.ReplaceAllString(model.FindString(name), "$1/$2.$3")
}

func (f *Fields) without(definition common.OpenAPIDefinition, t *releases.Type, ref common.ReferenceCallback) common.OpenAPIDefinition {
	if !slices.ContainsFunc(t.Fields, func(field releases.Field) bool { return field.In.Has(f.release) }) {
		return definition // of a kind that is not served
	}
	changed := false
	for name, property := range definition.Schema.Properties {
		row, has := t.Field(name, f.release)
		switch {
		case row == nil, !has && property.Default != nil:
			// Structs that are no pointers have a default, {}: encoders write them always,
			// and clients validate what they have read.
		case !has:
			delete(definition.Schema.Properties, name)
			definition.Schema.Required = slices.DeleteFunc(definition.Schema.Required, func(required string) bool { return required == name })
			changed = true
		case row.Enum && len(property.Enum) > 0:
			if values := f.values(nameIn(t.Package, row.Type)); values != nil {
				definition.Schema.Properties[name] = withValues(property, values)
			}
		}
	}
	f.addFormer(&definition.Schema, t)
	if changed {
		definition.Dependencies = slices.DeleteFunc(slices.Clone(definition.Dependencies), func(name string) bool {
			return !refers(&definition.Schema, ref(name))
		})
	}
	return definition
}

// addFormer adds the fields that the release has and the schema's type no longer does, so
// that clients which validate manifests accept them.
func (f *Fields) addFormer(s *spec.Schema, t *releases.Type) {
	if len(s.Properties) == 0 {
		return // a type with a form of its own
	}
	for i := range t.Fields {
		name := t.Fields[i].Name
		if _, known := s.Properties[name]; !known && t.Fields[i].In.Has(f.release) {
			s.Properties[name] = *(&spec.Schema{}).WithDescription(former)
		}
	}
}

// former describes a field that is dropped.
const former = "The field of this release is accepted, and not stored: this server does not have it."

// withValues returns the schema of an enumeration with these values only, in its
// description, too, whose last lines list them.
func withValues(s spec.Schema, values []string) spec.Schema {
	s.Enum = slices.DeleteFunc(slices.Clone(s.Enum), func(value any) bool {
		text, ok := value.(string)
		return ok && !slices.Contains(values, text)
	})
	lines := slices.DeleteFunc(strings.Split(s.Description, "\n"), func(line string) bool {
		rest, listed := strings.CutPrefix(line, " - `\"")
		value, _, _ := strings.Cut(rest, "\"`")
		return listed && !slices.Contains(values, value)
	})
	s.Description = strings.Join(lines, "\n")
	return s
}

// refers reports whether a schema refers to another one.
func refers(s *spec.Schema, to spec.Ref) bool {
	if s.Ref.String() == to.String() {
		return true
	}
	if s.Items != nil && (s.Items.Schema != nil && refers(s.Items.Schema, to) || slices.ContainsFunc(s.Items.Schemas, func(s spec.Schema) bool { return refers(&s, to) })) {
		return true
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil && refers(s.AdditionalProperties.Schema, to) {
		return true
	}
	for _, of := range s.Properties {
		if refers(&of, to) {
			return true
		}
	}
	return slices.ContainsFunc(slices.Concat(s.AllOf, s.AnyOf, s.OneOf), func(s spec.Schema) bool { return refers(&s, to) })
}
