package deprecation

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1beta1 "k8s.io/api/flowcontrol/v1beta1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/internal/releases"
)

type warnings struct{ texts []string }

func (w *warnings) AddWarning(_, text string) { w.texts = append(w.texts, text) }

func TestWarningsAreThoseOfTheRelease(t *testing.T) {
	kinds := []*resource.Kind{
		resource.Type[*flowcontrolv1beta3.FlowSchema]{Name: "flowschemas"}.Kind(),
		resource.Type[*flowcontrolv1beta1.FlowSchema]{Name: "flowschemas", Versions: []resource.Version{
			resource.Also[flowcontrolv1beta1.FlowSchema](schema.GroupVersion{Group: flowcontrolv1beta1.GroupName, Version: "v1alpha1"}),
		}}.Kind(),
		resource.Type[*rbacv1beta1.Role]{Name: "roles"}.Kind(),
		resource.Type[*corev1.Pod]{Name: "pods", Actions: []resource.Action{{
			Name: "eviction", InputVersions: []resource.InputVersion{resource.ConvertInput(func(*policyv1beta1.Eviction, *policyv1.Eviction) {}, func(*policyv1.Eviction, *policyv1beta1.Eviction) {})},
		}}}.Kind(),
	}
	table, err := releases.LoadKinds()
	if err != nil {
		t.Fatal(err)
	}
	const beta = "flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema is deprecated in v1.29+, unavailable in v1.32+"
	const first = "flowcontrol.apiserver.k8s.io/v1beta1 FlowSchema is deprecated in v1.23+, unavailable in v1.26+"
	const alpha = "flowcontrol.apiserver.k8s.io/v1alpha1 FlowSchema is deprecated in v1.20+, unavailable in v1.21+"
	const role = "rbac.authorization.k8s.io/v1beta1 Role is deprecated in v1.17+, unavailable in v1.22+"
	const flows = flowcontrolv1beta3.GroupName
	const eviction = "policy/v1beta1 Eviction is deprecated in v1.22+, unavailable in v1.25+"
	const other = "metadata.finalizers: prefer a domain-qualified finalizer name"
	for _, test := range []struct {
		rule                     string
		minor                    int
		group, version, resource string
		warning                  string
		want                     []string
	}{
		{"a deprecation of a later release is dropped", 28, flows, "v1beta3", "flowschemas", beta, []string{other}},
		{"one of the release passes", 29, flows, "v1beta3", "flowschemas", beta + "; use flowcontrol.apiserver.k8s.io/v1 FlowSchema", []string{beta + "; use flowcontrol.apiserver.k8s.io/v1 FlowSchema", other}},
		{"other resources' warnings pass", 28, "example.com", "v1beta3", "flowschemas", beta, []string{beta, other}},
		{"one of an earlier release passes", 30, flows, "v1beta3", "flowschemas", beta + "; use flowcontrol.apiserver.k8s.io/v1 FlowSchema", []string{beta + "; use flowcontrol.apiserver.k8s.io/v1 FlowSchema", other}},
		{
			"a version that the release does not serve is not recommended", 24, flows, "v1beta1", "flowschemas", first + "; use flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema",
			[]string{first + "; use flowcontrol.apiserver.k8s.io/v1beta2 FlowSchema", other},
		},
		{"no replacement is named if the kind declares none", 29, flows, "v1beta3", "flowschemas", beta, []string{beta, other}},
		{"releases before 1.19 warn of nothing", 18, "rbac.authorization.k8s.io", "v1beta1", "roles", role, []string{other}},
		{"1.19 does", 19, "rbac.authorization.k8s.io", "v1beta1", "roles", role + "; use rbac.authorization.k8s.io/v1 Role", []string{role + "; use rbac.authorization.k8s.io/v1 Role", other}},
		{"a body of a version that a later release deprecates", 21, "", "v1", "pods/eviction", eviction, []string{other}},
		{"a body of a deprecated version", 22, "", "v1", "pods/eviction", eviction, []string{eviction, other}},
		{"a version with the type of a later one is deprecated in its own time", 20, flows, "v1alpha1", "flowschemas", alpha + "; use flowcontrol.apiserver.k8s.io/v1beta1 FlowSchema", []string{alpha + "; use flowcontrol.apiserver.k8s.io/v1beta1 FlowSchema", other}},
		{"and not before", 19, flows, "v1alpha1", "flowschemas", alpha, []string{other}},
		{"another subresource has the version of its resource", 28, flows, "v1beta3", "flowschemas/status", beta, []string{other}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var got warnings
			handler := At(release.Release{Major: 1, Minor: test.minor}, table, kinds).Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				warning.AddWarning(req.Context(), "", test.warning)
				warning.AddWarning(req.Context(), "", other)
			}))
			resource, subresource, _ := strings.Cut(test.resource, "/")
			ctx := request.WithRequestInfo(warning.WithWarningRecorder(context.Background(), &got), &request.RequestInfo{
				APIGroup: test.group, APIVersion: test.version, Resource: resource, Subresource: subresource})
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			gomega.NewWithT(t).Expect(got.texts).To(gomega.Equal(test.want))
		})
	}
}

type events struct {
	audit.Backend
	annotations []map[string]string
}

func (e *events) ProcessEvents(all ...*auditapi.Event) bool {
	for _, event := range all {
		e.annotations = append(e.annotations, event.Annotations)
	}
	return true
}

func TestAuditEventsHaveDeprecationsOfTheRelease(t *testing.T) {
	table, err := releases.LoadKinds()
	if err != nil {
		t.Fatal(err)
	}
	kind := resource.Type[*flowcontrolv1beta3.FlowSchema]{Name: "flowschemas"}.Kind()
	event := func(ref *auditapi.ObjectReference) *auditapi.Event {
		return &auditapi.Event{ObjectRef: ref, Annotations: map[string]string{
			"k8s.io/deprecated": "true", "k8s.io/removed-release": "1.32", "other": "x"}}
	}
	beta := &auditapi.ObjectReference{APIGroup: flowcontrolv1beta3.GroupName, APIVersion: "v1beta3", Resource: "flowschemas"}
	unchanged := event(nil).Annotations
	for _, test := range []struct {
		rule    string
		release release.Release
		ref     *auditapi.ObjectReference
		want    map[string]string
	}{
		{"a deprecation of a later release is dropped", release.Release{Major: 1, Minor: 28}, beta, map[string]string{"other": "x"}},
		{"releases before 1.19 have none", release.Release{Major: 1, Minor: 18}, beta, map[string]string{"other": "x"}},
		{"one of the release stays", release.Release{Major: 1, Minor: 29}, beta, unchanged},
		{"other resources' annotations stay", release.Release{Major: 1, Minor: 28}, &auditapi.ObjectReference{Resource: "pods", APIVersion: "v1"}, unchanged},
		{"an event without an object stays", release.Release{Major: 1, Minor: 28}, nil, unchanged},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var got events
			At(test.release, table, []*resource.Kind{kind}).Audit(&got).ProcessEvents(event(test.ref))
			gomega.NewWithT(t).Expect(got.annotations).To(gomega.Equal([]map[string]string{test.want}))
		})
	}
}
