package validation

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// definitions are the schemas of an OpenAPI version 2 document.
type definitions map[string]*definition

type definition struct {
	Ref        string                 `json:"$ref"`
	Properties map[string]*definition `json:"properties"`
	Items      *definition            `json:"items"`
	GVKs       []struct {
		Group, Version, Kind string
	} `json:"x-kubernetes-group-version-kind"`
}

// readSchema reads the schemas of a server.
func readSchema(t *testing.T, s *server) definitions {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.host+"/openapi/v2", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var document struct{ Definitions definitions }
	if err := json.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	return document.Definitions
}

// have reports whether a kind has the field at a path. It is true within values
// without a schema.
func (all definitions) have(gvk schema.GroupVersionKind, path []any) bool {
	d := all.of(gvk)
	for _, step := range path {
		for d != nil && d.Ref != "" {
			d = all[strings.TrimPrefix(d.Ref, "#/definitions/")]
		}
		if d == nil {
			return true
		}
		name, isField := step.(string)
		switch {
		case !isField:
			d = d.Items
		case len(d.Properties) == 0:
			return true
		default:
			if d = d.Properties[name]; d == nil {
				return false
			}
		}
	}
	return true
}

func (all definitions) of(gvk schema.GroupVersionKind) *definition {
	for _, d := range all {
		for _, of := range d.GVKs {
			if of.Group == gvk.Group && of.Version == gvk.Version && of.Kind == gvk.Kind {
				return d
			}
		}
	}
	return nil
}
