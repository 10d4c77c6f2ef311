package bodycheck

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release/fields"
	"svc.dev/svc/internal/releases"
)

func TestFieldsThatTheReleaseLacksInPatches(t *testing.T) {
	const unknown = `unknown field "spec.hostnameOverride"`
	const merge, strategic, json6902 = "application/merge-patch+json", "application/strategic-merge-patch+json", "application/json-patch+json"
	table, err := releases.LoadKinds()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []*resource.Kind
	for _, d := range core.Kinds() {
		kinds = append(kinds, d.Kind())
	}
	checks := Checks(kinds, clientgoscheme.Scheme, fields.New(28, table))
	for _, test := range []struct {
		rule, contentType, query, group, body string
		code                                  int
		want                                  string // the handler's body, or the message
		warnings                              []string
	}{
		{"Warn cuts them with a warning", merge, "", "", `{"spec":{"hostnameOverride":"h","a":1,"a":2}}`, 200, `{"spec":{"a":1,"a":2}}`, []string{unknown}},
		{"Ignore cuts them", strategic, "fieldValidation=Ignore", "", `{"spec":{"hostnameOverride":"h"}}`, 200, `{"spec":{}}`, nil},
		{
			"Strict refuses them with the other misfits", strategic, "fieldValidation=Strict", "", `{"spec":{"$setElementOrder/containers":[],"typo":1,"hostname":"a","hostname":"b","hostnameOverride":"h"}}`,
			400, `duplicate field "spec.hostname", unknown field "spec.typo", ` + unknown, nil,
		},
		{"their names may be escaped", merge, "", "", `{"spec":{"hostname\u004fverride":"h"}}`, 200, `{"spec":{}}`, []string{unknown}},
		{"operations of JSON patches", json6902, "", "", `[{"op":"add","path":"/spec/hostnameOverride","value":"h"}]`, 200, `[]`, []string{unknown}},
		{"a patch without any stays", merge, "fieldValidation=Strict", "", `{ "spec": {} }`, 200, `{ "spec": {} }`, nil},
		{"an invalid patch is left to the handler", merge, "", "", `{"hostnameOverride" "spec"`, 200, `{"hostnameOverride" "spec"`, nil},
		{"a node agent's report stays", strategic, "", user.NodesGroup, `{"spec":{"hostnameOverride":"h"}}`, 200, `{"spec":{"hostnameOverride":"h"}}`, nil},
	} {
		t.Run(test.rule, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/api/v1/namespaces/n/pods/c/status?"+test.query, strings.NewReader(test.body))
			req.Header.Set("Content-Type", test.contentType)
			info := &request.RequestInfo{IsResourceRequest: true, Name: "c", Namespace: "n", APIVersion: "v1", Resource: "pods", Subresource: "status"}
			req = req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Groups: []string{test.group}}))
			code, got, warned := filtered(t, checks, req, info)
			if code != test.code || test.code == 200 && got != test.want || !strings.Contains(got, test.want) {
				t.Errorf("got %d and\n%s\nwant %d and\n%s", code, got, test.code, test.want)
			}
			if !slices.Equal(warned, test.warnings) {
				t.Errorf("warnings %q, want %q", warned, test.warnings)
			}
		})
	}
}
