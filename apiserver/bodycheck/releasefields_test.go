package bodycheck

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
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
		{"operations of JSON patches", json6902, "", "", `[{"op":"add","path":"/spec/hostnameOverride","value":"h"}]`, 200, `[]`, []string{unknown}},
		{"a patch without any stays", merge, "fieldValidation=Strict", "", `{ "spec": {} }`, 200, `{ "spec": {} }`, nil},
		{"an invalid patch is left to the handler", merge, "", "", `{"hostnameOverride" "spec"`, 200, `{"hostnameOverride" "spec"`, nil},
		{"a node agent's report stays", strategic, "", user.NodesGroup, `{"spec":{"hostnameOverride":"h"}}`, 200, `{"spec":{"hostnameOverride":"h"}}`, nil},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var got string
			handler := Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				read, err := io.ReadAll(req.Body)
				if err != nil {
					t.Error(err)
				}
				got = string(read)
			}), clientgoscheme.Codecs.WithoutConversion(), checks, 1<<20)
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/api/v1/namespaces/n/pods/c/status?"+test.query, strings.NewReader(test.body))
			req.Header.Set("Content-Type", test.contentType)
			var warned warnings
			ctx := warning.WithWarningRecorder(req.Context(), &warned)
			ctx = request.WithUser(ctx, &user.DefaultInfo{Groups: []string{test.group}})
			info := &request.RequestInfo{IsResourceRequest: true, Name: "c", Namespace: "n", APIVersion: "v1", Resource: "pods", Subresource: "status"}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, req.WithContext(request.WithRequestInfo(ctx, info)))
			if answer.Code != http.StatusOK {
				got = strings.ReplaceAll(answer.Body.String(), `\"`, `"`)
			}
			if answer.Code != test.code || test.code == 200 && got != test.want || !strings.Contains(got, test.want) {
				t.Errorf("got %d and\n%s\nwant %d and\n%s", answer.Code, got, test.code, test.want)
			}
			if !slices.Equal(warned, test.warnings) {
				t.Errorf("warnings %q, want %q", warned, test.warnings)
			}
		})
	}
}
