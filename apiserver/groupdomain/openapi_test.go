package groupdomain

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDocumentsOfOpenAPISayTheDomainsNames(t *testing.T) {
	const kinds = "x-kubernetes-group-version-kind"
	for name, test := range map[string]struct {
		path, stored, storedPath, want string
	}{
		"v2": {
			"/openapi/v2",
			`{"swagger":"2.0","paths":{"/api/":{},"/apis/":{},"/version":{"get":{}},"/api/v1/":{},"/api/v1/namespaces":{"get":{}},"/api/v1/namespaces/{name}/status":{"get":{}},
				"/api/v1/namespaces/{namespace}/pods":{"post":{"` + kinds + `":{"group":"","version":"v1","kind":"Pod"}}},
				"/apis/apps/v1/deployments":{"get":{"` + kinds + `":{"group":"apps","version":"v1","kind":"Deployment"}}},
				"/apis/storage.k8s.io/":{}},
			"definitions":{"Pod":{"` + kinds + `":[{"group":"","version":"v1","kind":"Pod"}]},"Status":{"` + kinds + `":[{"group":"","version":"v1","kind":"Status"}]},
				"Options":{"properties":{"a":{"` + kinds + `":[{"group":"storage.k8s.io","version":"v1","kind":"DeleteOptions"},{"group":"","version":"v1","kind":"DeleteOptions"}]}}}}}`,
			"/openapi/v2",
			`{"swagger":"2.0","paths":{"/apis/":{},"/version":{"get":{}},"/apis/core.svc.dev/":{},"/apis/core.svc.dev/v1/":{},
				"/apis/core.svc.dev/v1/namespaces/{namespace}/pods":{"post":{"` + kinds + `":{"group":"core.svc.dev","version":"v1","kind":"Pod"}}},
				"/apis/apps.svc.dev/v1/deployments":{"get":{"` + kinds + `":{"group":"apps.svc.dev","version":"v1","kind":"Deployment"}}},
				"/apis/storage.svc.dev/":{}},
			"definitions":{"Pod":{"` + kinds + `":[{"group":"core.svc.dev","version":"v1","kind":"Pod"}]},"Status":{"` + kinds + `":[{"group":"","version":"v1","kind":"Status"}]},
				"Options":{"properties":{"a":{"` + kinds + `":[{"group":"storage.svc.dev","version":"v1","kind":"DeleteOptions"},{"group":"","version":"v1","kind":"DeleteOptions"}]}}}}}`,
		},
		"the list of v3": {
			"/openapi/v3",
			`{"paths":{"api":{"serverRelativeURL":"/openapi/v3/api?hash=1"},"apis":{"serverRelativeURL":"/openapi/v3/apis?hash=2"},"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=3"},
				"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=4"},"version":{"serverRelativeURL":"/openapi/v3/version?hash=5"}}}`,
			"/openapi/v3",
			`{"paths":{"apis/core.svc.dev/v1":{"serverRelativeURL":"/openapi/v3/apis/core.svc.dev/v1?hash=3"},
				"apis/apps.svc.dev/v1":{"serverRelativeURL":"/openapi/v3/apis/apps.svc.dev/v1?hash=4"},"version":{"serverRelativeURL":"/openapi/v3/version?hash=5"}}}`,
		},
		"the core group of v3": {
			"/openapi/v3/apis/core.svc.dev/v1",
			`{"openapi":"3.0.0","paths":{"/api/v1/pods":{}},"components":{"schemas":{"Pod":{"` + kinds + `":[{"group":"","version":"v1","kind":"Pod"}]}}}}`,
			"/openapi/v3/api/v1",
			`{"openapi":"3.0.0","paths":{"/apis/core.svc.dev/v1/pods":{}},"components":{"schemas":{"Pod":{"` + kinds + `":[{"group":"core.svc.dev","version":"v1","kind":"Pod"}]}}}}`,
		},
		"the discovery of a group in v3": {
			"/openapi/v3/apis/storage.svc.dev",
			`{"openapi":"3.0.0","paths":{"/apis/storage.k8s.io/":{}}}`,
			"/openapi/v3/apis/storage.k8s.io",
			`{"openapi":"3.0.0","paths":{"/apis/storage.svc.dev/":{}}}`,
		},
		"the discovery of the core group in v3": {
			"/openapi/v3/apis/core.svc.dev", `{"openapi":"3.0.0","paths":{"/api/":{}}}`,
			"/openapi/v3/api", `{"openapi":"3.0.0","paths":{"/apis/core.svc.dev/":{}}}`,
		},
		"another group of v3": {
			"/openapi/v3/apis/storage.svc.dev/v1",
			`{"openapi":"3.0.0","paths":{"/apis/storage.k8s.io/v1/storageclasses":{}}}`,
			"/openapi/v3/apis/storage.k8s.io/v1",
			`{"openapi":"3.0.0","paths":{"/apis/storage.svc.dev/v1/storageclasses":{}}}`,
		},
	} {
		w, got, _, _ := serve(t, httptest.NewRequest(http.MethodGet, test.path, nil), http.StatusOK, test.stored)
		var document, want any
		mustUnmarshalAny(t, w.Body.Bytes(), &document)
		mustUnmarshalAny(t, []byte(test.want), &want)
		if diff := cmp.Diff(want, document); diff != "" || got.URL.Path != test.storedPath {
			t.Errorf("%s, from %s: %s", name, got.URL.Path, diff)
		}
	}
}

func TestDocumentsOfOpenAPIOfTheHostsGroupsAreNotServed(t *testing.T) {
	for _, path := range []string{"/openapi/v3/api", "/openapi/v3/api/v1", "/openapi/v3/apis/apps", "/openapi/v3/apis/apps/v1"} {
		w, got, _, _ := serve(t, httptest.NewRequest(http.MethodGet, path, nil), http.StatusOK, "{}")
		if w.Code != http.StatusNotFound || got != nil {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func mustUnmarshalAny(t *testing.T, text []byte, to *any) {
	t.Helper()
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}
