package groupdomain

import (
	"encoding/json"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// openAPI translates a document of OpenAPI v2 or v3: its paths, and the groups of its
// models and operations.
func (f *filter) openAPI(body []byte) ([]byte, error) {
	var document map[string]any
	if err := json.Unmarshal(body, &document); err != nil {
		return nil, err
	}
	if paths, ok := document["paths"].(map[string]any); ok {
		translated := make(map[string]any, len(paths))
		for path, item := range paths {
			if path, ok := f.publicPath(path); ok {
				translated[path] = item
			}
		}
		document["paths"] = translated
	}
	f.nameKinds(document)
	return json.Marshal(document)
}

// publicPath returns a stored path as on the wire, and whether it is served there.
func (f *filter) publicPath(path string) (string, bool) {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	name, rest := "", segments
	switch {
	case segments[0] == "api":
		rest = segments[1:]
		if len(rest) > 1 && IsNamespace(rest[1:]) {
			return "", false
		}
	case segments[0] == "apis" && len(segments) > 1 && segments[1] != "":
		name, rest = segments[1], segments[2:]
	default:
		return path, true
	}
	return "/" + strings.Join(append([]string{"apis", f.Names.Public(name)}, rest...), "/"), true
}

// nameKinds translates all extensions that hold a group, version and kind.
func (f *filter) nameKinds(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			f.nameKinds(element)
		}
	case map[string]any:
		for key, member := range value {
			if key != "x-kubernetes-group-version-kind" {
				f.nameKinds(member)
				continue
			}
			kinds, ok := member.([]any)
			if !ok {
				kinds = []any{member}
			}
			for _, kind := range kinds {
				f.nameKind(kind)
			}
		}
	}
}

func (f *filter) nameKind(kind any) {
	gvk, ok := kind.(map[string]any)
	if !ok {
		return
	}
	group, _ := gvk["group"].(string)
	version, _ := gvk["version"].(string)
	name, _ := gvk["kind"].(string)
	gvk["group"] = f.Names.toWire().kindGroup(schema.GroupVersionKind{Group: group, Version: version, Kind: name})
}

// openAPIList translates the list of the documents of OpenAPI v3.
func (f *filter) openAPIList(body []byte) ([]byte, error) {
	var list struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	named := map[string]any{}
	for path, document := range list.Paths {
		if path == "api" || path == "apis" {
			continue // of discovery, which is served at /apis alone
		}
		public, _ := f.publicPath("/" + path)
		location, err := url.Parse(document.URL)
		if err != nil {
			return nil, err
		}
		location.Path = "/openapi/v3" + public
		named[strings.TrimPrefix(public, "/")] = map[string]string{"serverRelativeURL": location.String()}
	}
	return json.Marshal(map[string]any{"paths": named})
}
