package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// gadgetDefinition defines gadgets whose specs have a field with the schema.
func gadgetDefinition(size string) string {
	return `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gadgets.example.com"}, "spec": {"group": "example.com",
		"scope": "Namespaced", "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}, "versions": [{"name": "v1", "served": true, "storage": true,
		"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": ` + size + `}}}}}}]}}`
}

// expectListed fails the test unless each of some lists has the objects as gets have them,
// and returns the last one.
func (s stage) expectListed(path string, names ...string) string {
	s.t.Helper()
	var want []any
	for _, name := range names {
		want = append(want, s.parse(s.must(http.MethodGet, path+"/"+name, "")))
	}
	var listed string
	for range 3 { // the third is written from bytes
		listed = s.must(http.MethodGet, path, "")
		if got := s.parse(listed)["items"]; !reflect.DeepEqual(got, want) {
			s.t.Fatalf("listed %v, want %v", got, want)
		}
	}
	return listed
}

func (s stage) parse(body string) map[string]any {
	s.t.Helper()
	var parsed map[string]any
	if err := json.Unmarshal([]byte(body), &parsed); err != nil {
		s.t.Fatalf("%v: %.300s", err, body)
	}
	return parsed
}

func TestRepeatedListsOfCustomResourcesAreCurrent(t *testing.T) {
	const definitions, gadgets = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/example.com/v1/namespaces/default/gadgets"
	s := newStage(t, "")
	s.must(http.MethodPost, definitions, gadgetDefinition(`{"type": "integer"}`))
	await(t, func() (int, string) { return s.request("admin", http.MethodGet, gadgets, "", nil) }, http.StatusOK)
	for _, name := range []string{"a", "b"} {
		s.must(http.MethodPost, gadgets, fmt.Sprintf(`{"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": %q}, "spec": {}}`, name))
	}
	s.expectListed(gadgets, "a", "b")
	s.must(http.MethodPatch, gadgets+"/b", `{"spec": {"size": 7}}`)
	if listed := s.expectListed(gadgets, "a", "b"); !strings.Contains(listed, `"size":7`) {
		t.Errorf("the change is not listed: %s", listed)
	}
	s.must(http.MethodDelete, gadgets+"/b", "")
	s.expectListed(gadgets, "a")
	s.must(http.MethodPatch, definitions+"/gadgets.example.com", gadgetDefinition(`{"type": "integer", "default": 3}`))
	await(t, func() (int, string) { // until the server has noticed the definition
		if body := s.must(http.MethodGet, gadgets, ""); !strings.Contains(body, `"size":3`) {
			return http.StatusAccepted, body
		}
		return http.StatusOK, ""
	}, http.StatusOK)
	s.expectListed(gadgets, "a")
	table := map[string]string{"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
	if code, body := s.request("admin", http.MethodGet, gadgets, "", table); code != http.StatusOK || !strings.Contains(body, `"cells":["a"`) {
		t.Errorf("%d %s", code, body)
	}
	if continued := s.parse(s.must(http.MethodGet, gadgets+"?limit=1&labelSelector=none", "")); len(continued["items"].([]any)) != 0 {
		t.Errorf("objects that are not selected are listed: %v", continued)
	}
}
