package registry_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

// bodies are what a client might send by mistake, with the name x. Few kinds
// accept one of them; for no kind may the server fail on one.
var bodies = []string{
	`{}`,
	`{metadata: {name: x}}`,
	`{metadata: {name: x}, spec: {}, status: {}}`,
	`{metadata: {name: x}, spec: null, status: null, data: null, subjects: null, rules: null}`,
	`{metadata: {generateName: x-}}`,
	`{metadata: {name: x, ownerReferences: [{}], finalizers: [""], managedFields: [{}]}}`,
	`{metadata: {name: x}, spec: {selector: {}, template: {spec: {containers: [{}]}}}}`,
	`{metadata: {name: x}, spec: {replicas: -1, minReplicas: -1, completions: -1, parallelism: -1}}`,
	`{metadata: {name: x}, webhooks: [{}], rules: [{}], endpoints: [{}], subsets: [{}], subjects: [{}], items: [{}]}`,
	`{metadata: {name: x}, spec: {rules: [{}], ports: [{}], ingress: [{}], egress: [{}], metrics: [{}], validations: [{}], paramKind: {}}}`,
}

func TestNoRequestForAnyKindIsAnsweredWithAServerError(t *testing.T) {
	var all []resource.Declaration
	for _, k := range apis.Kinds() {
		all = append(all, declared{k})
	}
	s := registrytest.Start(t, all...)
	s.Do(http.MethodPost, "/api/v1/namespaces", `{metadata: {name: z}}`).Want(http.StatusCreated)
	for _, k := range s.Kinds {
		for _, gvk := range k.GVKs() {
			t.Run(gvk.String(), func(t *testing.T) { exercise(t, s, k, gvk) })
		}
	}
}

// collection is the path of a kind's objects.
func collection(k *resource.Kind, gv schema.GroupVersion) string {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	if k.Namespaced {
		path += "/namespaces/z"
	}
	return path + "/" + k.Name
}

func exercise(t *testing.T, s *registrytest.Stack, k *resource.Kind, gvk schema.GroupVersionKind) {
	path := collection(k, gvk.GroupVersion())
	fail := func(what string, answer *registrytest.Answer) {
		t.Helper()
		if answer.Code >= http.StatusInternalServerError {
			t.Errorf("%s: %d %.400s", what, answer.Code, answer.Body)
		}
	}
	paths := []string{path + "/x"}
	if k.Status {
		paths = append(paths, path+"/x/status")
	}
	if k.Scale != nil {
		paths = append(paths, path+"/x/scale")
	}
	for _, v := range k.Views {
		paths = append(paths, path+"/x/"+v.Name)
	}
	for _, a := range k.Actions {
		paths = append(paths, path+"/x/"+a.Name)
	}
	for _, body := range bodies {
		body = fmt.Sprintf("{apiVersion: %s, kind: %s, %s", gvk.GroupVersion(), gvk.Kind, body[1:])
		fail("POST "+body, s.Do(http.MethodPost, path, body))
		for _, p := range paths {
			what := fmt.Sprintf("%s %s", strings.TrimPrefix(p, path), body)
			fail("POST "+what, s.Do(http.MethodPost, p, body))
			fail("PUT "+what, s.Do(http.MethodPut, p, body))
			for _, kind := range []string{"merge", "strategic-merge", "apply"} {
				fail(kind+" "+what, s.Patch(kind, p+"?fieldManager=m", body))
			}
			fail("json patch of "+what, s.Patch("json", p, []any{map[string]any{"op": "replace", "path": "/spec", "value": body}}))
			fail("GET "+what, s.Do(http.MethodGet, p, nil))
			fail("GET as a table "+what, s.Do(http.MethodGet, p, nil, "Accept", asTable))
		}
		fail("list", s.Do(http.MethodGet, path, nil))
		fail("list as a table", s.Do(http.MethodGet, path, nil, "Accept", asTable))
		fail("list as protobuf", s.Do(http.MethodGet, path, nil, "Accept", "application/vnd.kubernetes.protobuf"))
		if k.Name != "namespaces" {
			fail("DELETE", s.Do(http.MethodDelete, path+"/x", nil))
			fail("DELETE of all", s.Do(http.MethodDelete, path, nil))
		}
	}
}
