package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/internal/manifest"
)

const preserve = "x-kubernetes-preserve-unknown-fields"

// customResourceDefinition moves to each version what v1beta1 may say for all, and makes
// the schemas structural where that does not change what they accept.
func customResourceDefinition(e *edit) {
	spec := manifest.Get(e.obj, "spec")
	if manifest.IsNull(spec) {
		e.decide(e.obj, "spec", "the object has no spec")
		return
	}
	e.keep(spec, "spec", "scope", manifest.String("Namespaced"), "it is required in v1")
	crdVersions(e, spec)
	forEachVersion(e, spec)
	crdConversion(e, spec)
	group := manifest.Text(spec, "group")
	if e.patch {
		for i, version := range manifest.Items(spec, "versions") {
			if manifest.IsNull(manifest.Get(version, "schema")) {
				e.decide(version, fmt.Sprintf("spec.versions[%d].schema", i), "required in v1, and a list of versions in a patch replaces that of the object: write the schema here, too")
			}
		}
		return
	}
	if (strings.HasSuffix(group, ".k8s.io") || strings.HasSuffix(group, ".kubernetes.io")) && manifest.Text(e.obj, "metadata", "annotations", "api-approved.kubernetes.io") == "" {
		e.decide(manifest.Get(spec, "group"), "metadata.annotations", "v1 requires the annotation api-approved.kubernetes.io for groups of kubernetes.io and k8s.io")
	}
	keepUnknown := manifest.Text(spec, "preserveUnknownFields") != "false"
	if keepUnknown {
		manifest.Delete(spec, "preserveUnknownFields")
	}
	for i, version := range manifest.Items(spec, "versions") {
		crdSchema(e, version, fmt.Sprintf("spec.versions[%d]", i), keepUnknown)
	}
}

// crdVersions writes spec.version as a list.
func crdVersions(e *edit, spec *yaml.Node) {
	key := manifest.Key(spec, "version")
	if e.patch && key != nil && len(manifest.Items(spec, "versions")) == 0 {
		e.decide(key, "spec.version", "a list of versions in a patch replaces that of the object: name the version there")
		return
	}
	name := manifest.Delete(spec, "version")
	if name == nil {
		return
	}
	if len(manifest.Items(spec, "versions")) == 0 {
		manifest.Set(spec, "versions", manifest.List(manifest.Map("name", name, "served", manifest.Bool(true), "storage", manifest.Bool(true))))
	}
	e.changed(key, "spec.version", "removed: spec.versions lists it")
}

// forEachVersion moves the fields that v1beta1 has once to every version without them. A
// patch that lists no versions keeps them: only the object has the versions.
func forEachVersion(e *edit, spec *yaml.Node) {
	for _, move := range [][2]string{{"validation", "schema"}, {"subresources", "subresources"}, {"additionalPrinterColumns", "additionalPrinterColumns"}} {
		from, to := move[0], move[1]
		key := manifest.Key(spec, from)
		switch {
		case key == nil:
		case e.patch && len(manifest.Items(spec, "versions")) == 0:
			e.decide(key, "spec."+from, "v1 has %s in each version, and a list of versions in a patch replaces that of the object: change the object, or use a JSON patch", to)
		default:
			giveVersions(spec, to, manifest.Delete(spec, from))
			what := "moved to each version"
			if from != to {
				what = "moved to " + to + " of each version"
			}
			e.changed(key, "spec."+from, "%s", what)
		}
	}
	for i, version := range manifest.Items(spec, "versions") {
		for j, column := range manifest.Items(version, "additionalPrinterColumns") {
			e.rename(column, fmt.Sprintf("spec.versions[%d].additionalPrinterColumns[%d]", i, j), "JSONPath", "jsonPath")
		}
	}
}

func giveVersions(spec *yaml.Node, key string, value *yaml.Node) {
	if manifest.IsNull(value) {
		return
	}
	for _, version := range manifest.Items(spec, "versions") {
		if manifest.IsNull(manifest.Get(version, key)) {
			manifest.Set(version, key, manifest.Clone(value))
		}
	}
}

// crdConversion moves what concerns the webhook of conversions.
func crdConversion(e *edit, spec *yaml.Node) {
	conversion := manifest.Get(spec, "conversion")
	if strategy := manifest.Text(conversion, "strategy"); strategy != "Webhook" && (strategy != "" || !e.patch) {
		if manifest.Delete(conversion, "conversionReviewVersions") != nil {
			e.changed(manifest.Key(spec, "conversion"), "spec.conversion.conversionReviewVersions", "removed: there is no webhook")
		}
		return
	}
	versions := manifest.Delete(conversion, "conversionReviewVersions")
	if manifest.IsNull(versions) && !e.patch {
		versions = manifest.List(manifest.String("v1beta1"))
		e.changed(manifest.Key(spec, "conversion"), "spec.conversion.conversionReviewVersions", "required in v1: the default of v1beta1, [v1beta1], is written out")
	}
	client := manifest.Delete(conversion, "webhookClientConfig")
	if versions == nil && client == nil {
		return
	}
	manifest.Set(conversion, "webhook", manifest.Map("conversionReviewVersions", versions, "clientConfig", client))
	e.changed(manifest.Key(spec, "conversion"), "spec.conversion", "webhookClientConfig and conversionReviewVersions are clientConfig and conversionReviewVersions of webhook")
}

// crdSchema gives a version a structural schema.
func crdSchema(e *edit, version *yaml.Node, path string, keepUnknown bool) {
	path += ".schema.openAPIV3Schema"
	schema := manifest.Get(version, "schema", "openAPIV3Schema")
	if manifest.IsNull(schema) {
		manifest.Set(version, "schema", manifest.Map("openAPIV3Schema", manifest.Map("type", manifest.String("object"), preserve, manifest.Bool(true))))
		e.changed(version, path, "required in v1: a schema that accepts and keeps all fields is written out")
		return
	}
	eithers, typed := 0, 0
	eachSchema(schema, func(s *yaml.Node, _ bool) { eithers += intOrString(s) })
	if eithers > 0 {
		e.changed(manifest.Key(version, "schema"), path, "a structural schema has no types in anyOf and oneOf: %d of a string and an integer are %s", eithers, either)
	}
	eachSchema(schema, func(s *yaml.Node, isRoot bool) { typed += giveType(s, isRoot) })
	if typed > 0 {
		e.changed(manifest.Key(version, "schema"), path, "a structural schema names the type of every value: %d are written out", typed)
	}
	if keepUnknown {
		eachSchema(schema, keepFields)
		e.changed(manifest.Key(version, "schema"), path, "preserveUnknownFields is false in v1: %s keeps unknown fields as before; remove it where the schema is complete", preserve)
	}
	errs, err := structuralErrors(schema)
	if err != nil {
		e.decide(schema, path, "the schema cannot be read: %v", err)
	}
	for _, mistake := range errs {
		e.decide(schema, path, "the schema is not structural, which v1 requires: %v", mistake)
	}
}

// eachSchema visits a schema and those of its fields, items and values. The metadata of
// the object is left out: the server owns it.
func eachSchema(root *yaml.Node, visit func(s *yaml.Node, isRoot bool)) {
	var walk func(s *yaml.Node, isRoot bool)
	walk = func(s *yaml.Node, isRoot bool) {
		if s == nil || s.Kind != yaml.MappingNode {
			return
		}
		visit(s, isRoot)
		if properties := manifest.Get(s, "properties"); properties != nil {
			for i := 0; i+1 < len(properties.Content); i += 2 {
				if !isRoot || properties.Content[i].Value != "metadata" {
					walk(properties.Content[i+1], false)
				}
			}
		}
		walk(manifest.Get(s, "items"), false)
		walk(manifest.Get(s, "additionalProperties"), false)
	}
	walk(root, true)
}

// either marks a value that is an integer or a string.
const either = "x-kubernetes-int-or-string"

// intOrString marks a value whose schema has anyOf or oneOf of a string and an integer, in place
// of that, and returns how many it has marked.
func intOrString(s *yaml.Node) int {
	if manifest.Text(s, "type") != "" {
		return 0
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		var types []string
		for _, item := range manifest.Items(s, key) {
			if len(item.Content) != 2 { // it says more
				return 0
			}
			types = append(types, manifest.Text(item, "type"))
		}
		structural := key == "anyOf" && manifest.Text(s, either) == "true" && slices.IsSorted(types)
		slices.Sort(types)
		if !structural && slices.Equal(types, []string{"integer", "string"}) {
			manifest.Delete(s, key)
			manifest.Set(s, either, manifest.Bool(true))
			return 1
		}
	}
	return 0
}

// giveType adds the type that follows from the other keys of a schema, and returns how
// many it has added.
func giveType(s *yaml.Node, isRoot bool) int {
	if manifest.Text(s, "type") != "" || manifest.Text(s, either) == "true" {
		return 0
	}
	has := func(key string) bool { return manifest.Get(s, key) != nil }
	switch {
	case isRoot, has("properties"), has("additionalProperties"):
		manifest.SetFirst(s, "type", manifest.String("object"))
	case has("items"):
		manifest.SetFirst(s, "type", manifest.String("array"))
	default:
		return 0
	}
	return 1
}

// keepFields marks an object whose unknown fields would be pruned, and a value of any type.
func keepFields(s *yaml.Node, _ bool) {
	if manifest.Text(s, "type") == "" && manifest.Text(s, either) != "true" {
		manifest.Set(s, preserve, manifest.Bool(true))
		return
	}
	if values := manifest.Get(s, "additionalProperties"); manifest.Text(s, "type") == "object" && (values == nil || values.Kind != yaml.MappingNode && values.Value != "true") {
		manifest.Set(s, preserve, manifest.Bool(true))
	}
}

// structuralErrors returns why a schema is not structural.
func structuralErrors(schema *yaml.Node) (field.ErrorList, error) {
	text, err := manifest.EncodeJSON(schema, 0)
	if err != nil {
		return nil, err
	}
	var v1 apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal([]byte(text), &v1); err != nil {
		return nil, err
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&v1, &internal, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return field.ErrorList{{Type: field.ErrorTypeForbidden, Detail: err.Error()}}, nil
	}
	return structuralschema.ValidateStructural(nil, structural), nil
}
