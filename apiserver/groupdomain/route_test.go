package groupdomain

import (
	"strings"
	"testing"
)

func TestPathsOfTheDomainBecomeTheStoredOnes(t *testing.T) {
	names := newNames(t)
	for path, want := range map[string]route{
		"/healthz":                             {path: "/healthz"},
		"/version/":                            {path: "/version/"},
		"/apis":                                {document: groupList, path: "/apis"},
		"/apis/core.svc.dev":                   {document: group, path: "/api"},
		"/apis/apps.svc.dev/v1":                {document: resourceList, path: "/apis/apps/v1"},
		"/apis/core.svc.dev/v1/pods":           {document: objects, path: "/api/v1/pods", resource: "pods"},
		"/apis/core.svc.dev/v1/nodes/a/status": {document: objects, path: "/api/v1/nodes/a/status", resource: "nodes", name: "a", subresource: "status"},
		"/apis/core.svc.dev/v1/namespaces/n/services/s:80/proxy/": {
			document: objects, path: "/api/v1/namespaces/n/services/s:80/proxy/", resource: "services", name: "s:80", subresource: "proxy",
		},
		"/apis/core.svc.dev/v1/namespaces/n/pods/p":           {document: objects, path: "/api/v1/namespaces/n/pods/p", resource: "pods", name: "p"},
		"/apis/apps.svc.dev/v1/watch/namespaces/n/daemonsets": {document: objects, path: "/apis/apps/v1/watch/namespaces/n/daemonsets", resource: "daemonsets"},
		"/apis/apiextensions.svc.dev/v1/customresourcedefinitions/widgets.example.com.svc.dev": {
			document: objects, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
			resource: "customresourcedefinitions", name: "widgets.example.com.svc.dev",
		},
		"/apis/example.com.svc.dev/v1/namespaces/n/widgets": {document: objects, path: "/apis/example.com/v1/namespaces/n/widgets", resource: "widgets"},
		"/openapi/v2":                                       {document: openAPIV2, path: "/openapi/v2"},
		"/openapi/v3":                                       {document: openAPIV3List, path: "/openapi/v3"},
		"/openapi/v3/apis/core.svc.dev/v1":                  {document: openAPIV3, path: "/openapi/v3/api/v1"},
		"/openapi/v3/apis/apps.svc.dev/v1":                  {document: openAPIV3, path: "/openapi/v3/apis/apps/v1"},
		"/openapi/v3/version":                               {path: "/openapi/v3/version"},
		"/apis/fleet.svc.dev/v1/fleets/a/proxy/api/v1/pods": {document: fleet, path: "/api/v1/pods"},
		"/apis/fleet.svc.dev/v1/fleets/a/proxy":             {document: fleet, path: "/"},
		"/apis/fleet.svc.dev/v1/fleets/a":                   {document: objects, path: "/apis/fleet/v1/fleets/a", resource: "fleets", name: "a"},
	} {
		got := names.route(path, "a")
		got.gv = want.gv
		if got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
}

func TestWhatTheHostServesIsUnknown(t *testing.T) {
	names := newNames(t)
	for path, reason := range map[string]string{
		"/api/v1/pods":                                       "/apis/fleet.svc.dev/v1/fleets/a/proxy",
		"/apis/apps/v1/deployments":                          "end with .svc.dev",
		"/apis/core.svc.dev/v1/namespaces":                   "the host's",
		"/apis/core.svc.dev/v1/namespaces/n":                 "the host's",
		"/openapi/v3/apis/apps/v1":                           "end with .svc.dev",
		"/apis/fleet.svc.dev/v1/fleets/other/proxy/api/v1/x": `fleet "other" not found`,
	} {
		if got := names.route(path, "a"); got.document != unknown || !strings.Contains(got.reason, reason) {
			t.Errorf("%s: %+v, want an unknown path because of %q", path, got, reason)
		}
	}
}
