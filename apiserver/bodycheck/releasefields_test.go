package bodycheck

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release/fields"
	"svc.dev/svc/internal/releases"
)

// coreKinds returns the table of releases, and the kinds of the core group.
func coreKinds(t *testing.T) (*releases.Table, []*resource.Kind) {
	t.Helper()
	table, err := releases.LoadKinds()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []*resource.Kind
	for _, d := range core.Kinds() {
		kinds = append(kinds, d.Kind())
	}
	return table, kinds
}

func TestFieldsThatTheReleaseLacksInPatches(t *testing.T) {
	const unknown = `unknown field "spec.hostnameOverride"`
	const merge, strategic, json6902 = "application/merge-patch+json", "application/strategic-merge-patch+json", "application/json-patch+json"
	table, kinds := coreKinds(t)
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

func TestFieldsThatTheReleaseLacksInDefinitionsInProtobuf(t *testing.T) {
	table, err := releases.LoadKinds()
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	serializer := protobuf.NewSerializer(scheme, scheme)
	definition := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".a"}}},
		}},
	}
	var body bytes.Buffer
	if err := serializer.Encode(definition, &body); err != nil {
		t.Fatal(err)
	}
	for release, fields := range map[releases.Release]*fields.Fields{28: fields.New(28, table), 30: fields.New(30, table)} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", bytes.NewReader(body.Bytes()))
		req.Header.Set("Content-Type", runtime.ContentTypeProtobuf)
		info := &request.RequestInfo{IsResourceRequest: true, APIGroup: "apiextensions.k8s.io", APIVersion: "v1", Resource: "customresourcedefinitions", Verb: "create"}
		_, got, warned := filtered(t, Checks(nil, clientgoscheme.Scheme, fields), req, info)
		obj, _, err := serializer.Decode([]byte(got), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		version := obj.(*apiextensionsv1.CustomResourceDefinition).Spec.Versions[0]
		if version.Name != "v1" || (len(version.SelectableFields) == 1) != (release == 30) || len(warned) > 0 {
			t.Errorf("%v: %+v, warnings %q", release, version, warned)
		}
	}
}

func TestFieldsThatOnlyTheReleaseHas(t *testing.T) {
	table, kinds := coreKinds(t)
	const body = `{"metadata":{"name":"s","clusterName":"c"},"spec":{"topologyKeys":["*"],"type":"ClusterIP"}}`
	dropped := []string{
		`field "metadata.clusterName" is not stored: the release has it, this server does not`,
		`field "spec.topologyKeys" is not stored: the release has it, this server does not`,
	}
	for _, test := range []struct {
		rule, method, contentType, query, body, want string
		release                                      releases.Release
		warnings                                     []string
	}{
		{"they are dropped with a warning", http.MethodPost, "application/json", "fieldValidation=Strict", body, `{"metadata":{"name":"s"},"spec":{"type":"ClusterIP"}}`, 21, dropped},
		{"Ignore has no warning", http.MethodPut, "application/json", "fieldValidation=Ignore", body, `{"metadata":{"name":"s"},"spec":{"type":"ClusterIP"}}`, 21, nil},
		{"YAML", http.MethodPost, "application/yaml", "", "spec:\n  topologyKeys: [a]\n  type: ClusterIP\n", `{"spec":{"type":"ClusterIP"}}`, 21, dropped[1:]},
		{"patches", http.MethodPatch, "application/merge-patch+json", "", `{"spec":{"topologyKeys":null}}`, `{"spec":{}}`, 17, dropped[1:]},
		{"JSON patches", http.MethodPatch, "application/json-patch+json", "", `[{"op":"add","path":"/metadata/clusterName","value":"c"}]`, `[]`, 16, dropped[:1]},
		{"a release without one of them", http.MethodPost, "application/json", "", body, `{"metadata":{"name":"s"},"spec":{"topologyKeys":["*"],"type":"ClusterIP"}}`, 23, dropped[:1]},
		{"a release without them", http.MethodPost, "application/json", "", body, body, 28, nil},
	} {
		t.Run(test.rule, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), test.method, "/api/v1/namespaces/n/services?"+test.query, strings.NewReader(test.body))
			req.Header.Set("Content-Type", test.contentType)
			info := &request.RequestInfo{IsResourceRequest: true, Namespace: "n", APIVersion: "v1", Resource: "services"}
			lacking := fields.New(test.release, table)
			checks := []Check{{Name: "former fields", Select: selectFormerFields(kinds, lacking)}}
			code, got, warned := filtered(t, checks, req, info)
			if code != http.StatusOK || got != test.want {
				t.Errorf("got %d and\n%s\nwant\n%s", code, got, test.want)
			}
			if !slices.Equal(warned, test.warnings) {
				t.Errorf("warnings %q, want %q", warned, test.warnings)
			}
		})
	}
}
