package bodycheck

import (
	"net/http"
	"testing"
)

func TestOwnershipResetFollowsTheSpecification(t *testing.T) {
	const noFields = `[{"manager":"reset","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]`
	for name, test := range map[string]struct{ method, contentType, body, want string }{
		"an update with an empty list keeps the managers": {
			http.MethodPut, "application/json", `{"metadata": {"managedFields": [ ], "name":"c"}}`, `{"metadata": {"managedFields": null, "name":"c"}}`,
		},
		"an update with an empty entry gets a manager without fields": {
			http.MethodPut, "application/json", `{"a":1, "metadata":{"name":"c","managedFields":[{}]}}`, `{"a":1, "metadata":{"name":"c","managedFields":` + noFields + `}}`,
		},
		"JSON is the default": {
			http.MethodPut, "", `{"metadata":{"managedFields":[]}}`, `{"metadata":{"managedFields":null}}`,
		},
		"an update in YAML": {
			http.MethodPut, "application/yaml", "metadata:\n  managedFields:\n  - {}\n", `{"metadata":{"managedFields":` + noFields + `}}`,
		},
		"a merge patch": {
			http.MethodPatch, "application/merge-patch+json", `{"metadata":{"managedFields":[{}]}}`, `{"metadata":{"managedFields":` + noFields + `}}`,
		},
		"a strategic merge patch": {
			http.MethodPatch, "application/strategic-merge-patch+json", `{"metadata":{"managedFields":[]}}`, `{"metadata":{"managedFields":null}}`,
		},
		"a JSON patch of the field": {
			http.MethodPatch, "application/json-patch+json", `[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`,
			`[{"op":"replace","path":"/metadata/managedFields","value":` + noFields + `}]`,
		},
		"a JSON patch of the metadata": {
			http.MethodPatch, "application/json-patch+json", `[{"op":"add","path":"/metadata","value":{"managedFields":[]}}]`,
			`[{"op":"add","path":"/metadata","value":{"managedFields":null}}]`,
		},
		"an update in YAML with duplicate fields that are refused is left to the handler": {
			http.MethodPut, "application/yaml;strict", "metadata:\n  name: a\n  name: b\n  managedFields: []\n", "metadata:\n  name: a\n  name: b\n  managedFields: []\n",
		},
		"an entry with empty fields is an empty one": {
			http.MethodPut, "application/json", `{"metadata":{"managedFields":[{"manager":""}]}}`, `{"metadata":{"managedFields":` + noFields + `}}`,
		},
		"a JSON patch of the whole object": {
			http.MethodPatch, "application/json-patch+json", `[{"op":"replace","path":"","value":{"metadata":{"managedFields":[]}}}]`,
			`[{"op":"replace","path":"","value":{"metadata":{"managedFields":null}}}]`,
		},
		"a test of a JSON patch stays": {
			http.MethodPatch, "application/json-patch+json", `[{"op":"test","path":"/metadata/managedFields","value":[]}]`,
			`[{"op":"test","path":"/metadata/managedFields","value":[]}]`,
		},
		"managers of another object stay": {
			http.MethodPut, "application/json", `{"spec":{"metadata":{"managedFields":[]}}}`, `{"spec":{"metadata":{"managedFields":[]}}}`,
		},
		"entries stay": {
			http.MethodPut, "application/json", `{"metadata":{"managedFields":[{"manager":"m"}]}}`, `{"metadata":{"managedFields":[{"manager":"m"}]}}`,
		},
		"two empty entries stay": {
			http.MethodPut, "application/json", `{"metadata":{"managedFields":[{},{}]}}`, `{"metadata":{"managedFields":[{},{}]}}`,
		},
		"null stays": {
			http.MethodPut, "application/json", `{"metadata":{"managedFields":null}}`, `{"metadata":{"managedFields":null}}`,
		},
		"a wrong type stays": {
			http.MethodPut, "application/json", `{"metadata":"managedFields"}`, `{"metadata":"managedFields"}`,
		},
		"what is no JSON stays": {
			http.MethodPut, "application/json", `{"metadata":{"managedFields":[`, `{"metadata":{"managedFields":[`,
		},
		"a creation stays": {
			http.MethodPost, "application/json", `{"metadata":{"managedFields":[]}}`, `{"metadata":{"managedFields":[]}}`,
		},
	} {
		got, length := send(t, test.method, test.contentType, test.body)
		if got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
		if length != int64(len(got)) {
			t.Errorf("%s: %d bytes are announced, %d follow", name, length, len(got))
		}
	}
}
