package disruption

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"svc.dev/svc/controllers/discovery"
)

// TestAMissingScaleIsNotAMissingOwner: the API server answers both for custom resources with
// the same error.
func TestAMissingScaleIsNotAMissingOwner(t *testing.T) {
	version := schema.GroupVersion{Group: "example.com", Version: "v1"}
	served := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{{
		GroupVersion: version.String(), APIResources: []metav1.APIResource{{Name: "fleets"}, {Name: "fleets/scale"}, {Name: "docks"}},
	}}}}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{version})
	mapper.Add(version.WithKind("Fleet"), meta.RESTScopeNamespace)
	mapper.Add(version.WithKind("Dock"), meta.RESTScopeNamespace)
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithRESTMapper(mapper).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceGet: func(_ context.Context, _ client.Client, _ string, obj, scale client.Object, _ ...client.SubResourceGetOption) error {
			if obj.GetName() == "gone" || obj.GetObjectKind().GroupVersionKind().Kind == "Dock" {
				return apierrors.NewNotFound(version.WithResource("any").GroupResource(), obj.GetName())
			}
			scale.(*unstructured.Unstructured).Object = map[string]any{"metadata": map[string]any{"uid": "1"}, "spec": map[string]any{"replicas": int64(4)}}
			return nil
		},
	}).Build()
	s := scales{c, discovery.New(served, clock.RealClock{})}
	for _, test := range []struct {
		rule, kind, name string
		uid              types.UID
		want             int32
		err              string
	}{
		{"the scale counts", "Fleet", "a", "1", 4, ""},
		{"the owner is gone", "Fleet", "gone", "1", 0, `found no controllers for pod "pod"`},
		{"another one has its name", "Fleet", "a", "2", 0, `found no controllers for pod "pod"`},
		{"the kind has no scale", "Dock", "a", "1", 0, "docks.example.com does not implement the scale subresource"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}}
		ref := metav1.OwnerReference{APIVersion: version.String(), Kind: test.kind, Name: test.name, UID: test.uid, Controller: ptr.To(true)}
		pod.OwnerReferences = []metav1.OwnerReference{ref}
		sum, _, err := s.sum(t.Context(), []*corev1.Pod{pod})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if sum != test.want || got != test.err {
			t.Errorf("%s: %d, %q; want %d, %q", test.rule, sum, got, test.want, test.err)
		}
	}
}
