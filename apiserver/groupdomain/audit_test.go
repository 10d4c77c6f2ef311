package groupdomain

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditapi "k8s.io/apiserver/pkg/apis/audit"

	"svc.dev/svc/apis"
)

func TestEventsOfAuditSayThePublicNamesAtEachStage(t *testing.T) {
	scheme, err := apis.NewScheme(apis.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	f := &filter{Config: Config{Names: newNames(t), FleetName: "default", Scheme: scheme}}
	unknown := func(raw string) *runtime.Unknown {
		return &runtime.Unknown{Raw: []byte(raw), ContentType: runtime.ContentTypeJSON}
	}
	for name, test := range map[string]struct{ event, want *auditapi.Event }{
		"an object": {
			&auditapi.Event{
				RequestURI: "/apis/apps/v1/namespaces/n/deployments/web?dryRun=All", ObjectRef: &auditapi.ObjectReference{APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Name: "web"},
				RequestObject: unknown(`{"apiVersion":"apps/v1"}`), ResponseStatus: &metav1.Status{Code: http.StatusOK}, ResponseObject: unknown(`{"apiVersion":"apps/v1"}`),
			},
			&auditapi.Event{
				RequestURI: "/apis/apps.svc.dev/v1/namespaces/n/deployments/web?dryRun=All", ObjectRef: &auditapi.ObjectReference{APIGroup: "apps.svc.dev", APIVersion: "v1", Resource: "deployments", Name: "web"},
				RequestObject: unknown(`{"apiVersion":"apps.svc.dev/v1"}`), ResponseStatus: &metav1.Status{Code: http.StatusOK}, ResponseObject: unknown(`{"apiVersion":"apps.svc.dev/v1"}`),
			},
		},
		"an error": {
			&auditapi.Event{
				RequestURI: "/apis/apps/v1/namespaces/n/deployments/web", ObjectRef: &auditapi.ObjectReference{APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Name: "web"},
				ResponseStatus: &metav1.Status{Code: http.StatusNotFound, Message: `deployments.apps "web" not found`, Details: &metav1.StatusDetails{Group: "apps", Kind: "deployments"}},
				ResponseObject: unknown(`{"kind":"Status","apiVersion":"v1","metadata":{},"message":"deployments.apps \"web\" not found","details":{"group":"apps","kind":"deployments"}}`),
			},
			&auditapi.Event{
				RequestURI: "/apis/apps.svc.dev/v1/namespaces/n/deployments/web", ObjectRef: &auditapi.ObjectReference{APIGroup: "apps.svc.dev", APIVersion: "v1", Resource: "deployments", Name: "web"},
				ResponseStatus: &metav1.Status{Code: http.StatusNotFound, Message: `deployments.apps.svc.dev "web" not found`, Details: &metav1.StatusDetails{Group: "apps.svc.dev", Kind: "deployments"}},
				ResponseObject: unknown(`{"kind":"Status","apiVersion":"v1","metadata":{},"message":"deployments.apps.svc.dev \"web\" not found","details":{"group":"apps.svc.dev","kind":"deployments"}}`),
			},
		},
		"an object that is named by a group": {
			&auditapi.Event{
				RequestURI: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com/status",
				ObjectRef:  &auditapi.ObjectReference{APIGroup: "apiextensions.k8s.io", APIVersion: "v1", Resource: "customresourcedefinitions", Name: "widgets.example.com", Subresource: "status"},
			},
			&auditapi.Event{
				RequestURI: "/apis/apiextensions.svc.dev/v1/customresourcedefinitions/widgets.example.com.svc.dev/status",
				ObjectRef:  &auditapi.ObjectReference{APIGroup: "apiextensions.svc.dev", APIVersion: "v1", Resource: "customresourcedefinitions", Name: "widgets.example.com.svc.dev", Subresource: "status"},
			},
		},
		"a namespace of the host": {
			&auditapi.Event{RequestURI: "/api/v1/namespaces/n", ObjectRef: &auditapi.ObjectReference{APIVersion: "v1", Resource: "namespaces", Name: "n"}},
			&auditapi.Event{RequestURI: "/api/v1/namespaces/n", ObjectRef: &auditapi.ObjectReference{APIVersion: "v1", Resource: "namespaces", Name: "n"}},
		},
		"a document": {&auditapi.Event{RequestURI: "/version"}, &auditapi.Event{RequestURI: "/version"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, stage := range []auditapi.Stage{auditapi.StageRequestReceived, auditapi.StageResponseComplete} {
				test.event.Stage, test.want.Stage = stage, stage
				if diff := cmp.Diff(test.want, f.event(test.event)); diff != "" {
					t.Errorf("at stage %s (-want +got):\n%s", stage, diff)
				}
			}
		})
	}
}
