package bodycheck

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apiserver/definitioncache"
)

// CustomApplyFields returns the check of apply patches to custom resources, whose
// unknown fields are treated as those of kinds are. It is for the handler of custom
// resources: definitions has the schemas.
func CustomApplyFields(definitions apiextensionslisters.CustomResourceDefinitionLister) Check {
	schemas := &customSchemas{definitions: definitions, cache: definitioncache.New(structural)}
	return Check{Name: "custom apply fields", Select: func(req *http.Request) Func {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !isApply(req) || !info.IsResourceRequest || info.APIGroup == apiextensionsv1.GroupName || info.Subresource == "scale" {
			return nil
		}
		return func(body []byte) ([]byte, error) {
			object, err := decode(body)
			if err != nil {
				return body, nil // the handler says what is wrong
			}
			schema := schemas.of(info.Resource+"."+info.APIGroup, info.APIVersion)
			if schema == nil || object["apiVersion"] != info.APIGroup+"/"+info.APIVersion {
				return body, nil // as above
			}
			unknown := pruneCustom(object, schema)
			if len(unknown) == 0 {
				return body, nil // duplicate fields stay, for the handler to find
			}
			if err := treatUnknown(req, append(duplicates(body), unknown...)); err != nil {
				return nil, err
			}
			return json.Marshal(object)
		}
	}}
}

// pruneCustom removes the fields from a custom resource that its schema does not
// declare, and returns a text for each.
func pruneCustom(object map[string]any, schema *structuralschema.Structural) []string {
	var found misfits
	if metadata, ok := object["metadata"].(map[string]any); ok {
		found.walkStruct(metadata, reflect.TypeFor[metav1.ObjectMeta](), "metadata")
	}
	for _, path := range pruning.PruneWithOptions(object, schema, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		found.unknown = append(found.unknown, unknownField(path))
	}
	slices.Sort(found.unknown)
	return found.unknown
}

// customSchemas are the schemas of custom resources, converted when they are needed.
type customSchemas struct {
	definitions apiextensionslisters.CustomResourceDefinitionLister
	cache       *definitioncache.Cache[*structuralschema.Structural]
}

// of returns the schema of a version, or nil if unknown fields are preserved or the
// version does not exist.
func (c *customSchemas) of(name, version string) *structuralschema.Structural {
	definition, err := c.definitions.Get(name)
	if err != nil {
		return nil
	}
	return c.cache.Of(definition, version)
}

// structural converts the schema of a version.
func structural(definition *apiextensionsv1.CustomResourceDefinition, version string) *structuralschema.Structural {
	at := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	if at < 0 || definition.Spec.PreserveUnknownFields || definition.Spec.Versions[at].Schema == nil {
		return nil
	}
	var validation apiextensions.JSONSchemaProps
	if apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[at].Schema.OpenAPIV3Schema, &validation, nil) != nil {
		return nil // the handler does not serve it, either
	}
	schema, err := structuralschema.NewStructural(&validation)
	if err != nil {
		return nil // as above
	}
	return schema
}
