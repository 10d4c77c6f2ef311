package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The library's validation of such an object takes longer than the time limit of a request.
func TestACustomResourceWithTwentyThousandInvalidItemsIsAnswered(t *testing.T) {
	const definitions, widgets = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/example.com/v1/namespaces/default/widgets"
	s := newStage(t, "")
	s.must(http.MethodPost, definitions, `{"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
		"names": {"plural": "widgets", "singular": "widget", "kind": "Widget"}, "versions": [{"name": "v1", "served": true, "storage": true,
		"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
			"names": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}}}}}}}}]}}`)
	await(t, func() (int, string) { return s.request("admin", http.MethodGet, widgets, "", nil) }, http.StatusOK)
	s.must(http.MethodPost, widgets, `{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "b"}, "spec": {"names": ["x"]}}`)
	names := make([]string, 20_000)
	for i := range names {
		names[i] = fmt.Sprintf(`"N%d"`, 1000+i)
	}
	body := func(name string) string {
		return `{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "` + name + `"}, "spec": {"names": [` + strings.Join(names, ",") + `]}}`
	}
	for verb, request := range map[string]struct{ method, path, body string }{
		"create": {http.MethodPost, widgets, body("a")},
		"patch":  {http.MethodPatch, widgets + "/b", body("b")},
	} {
		code, answer := s.request("admin", request.method, request.path, request.body, nil)
		var status metav1.Status
		if err := json.Unmarshal([]byte(answer), &status); err != nil || code != http.StatusUnprocessableEntity {
			t.Fatalf("%s: %d %.300s", verb, code, answer)
		}
		if causes := status.Details.Causes; len(causes) != 101 || causes[0].Field != "spec.names[0]" || !strings.Contains(causes[100].Message, "and 19900 more errors") {
			t.Errorf("%s: %d causes from %+v to %+v", verb, len(causes), causes[0], causes[len(causes)-1])
		}
	}
}
