package deprecation

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onsi/gomega"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release"
)

type warnings struct{ texts []string }

func (w *warnings) AddWarning(_, text string) { w.texts = append(w.texts, text) }

func TestWarningsAreThoseOfTheRelease(t *testing.T) {
	kind := resource.Type[*flowcontrolv1beta3.FlowSchema]{Name: "flowschemas"}.Kind()
	const beta = "flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema is deprecated in v1.29+, unavailable in v1.32+"
	const other = "metadata.finalizers: prefer a domain-qualified finalizer name"
	for _, test := range []struct {
		rule    string
		release release.Release
		group   string
		want    []string
	}{
		{"a deprecation of a later release is dropped", release.Release{Major: 1, Minor: 28}, flowcontrolv1beta3.GroupName, []string{other}},
		{"one of the release passes", release.Release{Major: 1, Minor: 29}, flowcontrolv1beta3.GroupName, []string{beta, other}},
		{"other resources' warnings pass", release.Release{Major: 1, Minor: 28}, "example.com", []string{beta, other}},
		{"one of an earlier release passes", release.Release{Major: 1, Minor: 30}, flowcontrolv1beta3.GroupName, []string{beta, other}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var got warnings
			handler := After(test.release, []*resource.Kind{kind}).Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				warning.AddWarning(req.Context(), "", beta)
				warning.AddWarning(req.Context(), "", other)
			}))
			ctx := request.WithRequestInfo(warning.WithWarningRecorder(context.Background(), &got), &request.RequestInfo{
				APIGroup: test.group, APIVersion: "v1beta3", Resource: "flowschemas"})
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
		{"one of the release stays", release.Release{Major: 1, Minor: 29}, beta, unchanged},
		{"other resources' annotations stay", release.Release{Major: 1, Minor: 28}, &auditapi.ObjectReference{Resource: "pods", APIVersion: "v1"}, unchanged},
		{"an event without an object stays", release.Release{Major: 1, Minor: 28}, nil, unchanged},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var got events
			After(test.release, []*resource.Kind{kind}).Audit(&got).ProcessEvents(event(test.ref))
			gomega.NewWithT(t).Expect(got.annotations).To(gomega.Equal([]map[string]string{test.want}))
		})
	}
}
