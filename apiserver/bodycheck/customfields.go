package bodycheck

import (
	"encoding/json"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"weak"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// CustomApplyFields returns the check of apply patches to custom resources, whose
// unknown fields are treated as those of kinds are. It is for the handler of custom
// resources: definitions has the schemas.
func CustomApplyFields(definitions apiextensionslisters.CustomResourceDefinitionLister) Check {
	schemas := &customSchemas{definitions: definitions, cache: &schemaCache{schemas: map[string]cachedSchema{}}}
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
	cache       *schemaCache
}

// schemaCache has no reference to the lister: the cleanup of a definition holds the cache,
// and must not hold the definition.
type schemaCache struct {
	mu      sync.Mutex
	schemas map[string]cachedSchema // by the definition's name and the version
}

// cachedSchema is the schema of a version of a definition. A definition that has
// changed is another object. It is dropped with the definition.
type cachedSchema struct {
	definition weak.Pointer[apiextensionsv1.CustomResourceDefinition]
	schema     *structuralschema.Structural
}

// of returns the schema of a version, or nil if unknown fields are preserved or the
// version does not exist.
func (c *customSchemas) of(name, version string) *structuralschema.Structural {
	definition, err := c.definitions.Get(name)
	if err != nil {
		definition = nil
	}
	return c.cache.of(definition, name+"/"+version, version)
}

// of returns the schema of a version of a definition, which is nil if it does not exist.
func (c *schemaCache) of(definition *apiextensionsv1.CustomResourceDefinition, key, version string) *structuralschema.Structural {
	c.mu.Lock()
	defer c.mu.Unlock()
	if definition == nil {
		delete(c.schemas, key)
		return nil
	}
	if found := c.schemas[key]; found.definition.Value() == definition {
		return found.schema
	}
	schema := structural(definition, version)
	c.schemas[key] = cachedSchema{weak.Make(definition), schema}
	runtime.AddCleanup(definition, c.forget, key)
	return schema
}

// forget drops the schema of a definition that is not in memory any more.
func (c *schemaCache) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.schemas[key]; ok && found.definition.Value() == nil {
		delete(c.schemas, key)
	}
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
