package horizontalpodautoscaler

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestATargetIsFoundByItsKindInAnyServedVersion(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{appsv1.SchemeGroupVersion})
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithRESTMapper(mapper).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceGet: func(_ context.Context, _ client.Client, _ string, obj, sub client.Object, _ ...client.SubResourceGetOption) error {
			if version := obj.GetObjectKind().GroupVersionKind().Version; version != "v1" {
				t.Errorf("read the scale of version %q", version)
			}
			sub.(*unstructured.Unstructured).Object = map[string]any{"spec": map[string]any{"replicas": int64(3)}}
			return nil
		},
	}).Build()
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	for version, wanted := range map[string]string{
		"apps/v1": "", "apps/v1beta1": "",
		"example.com/v1": `no matches for kind "Deployment" in group "example.com"`,
		"a/b/c":          "invalid API version in scale target reference: unexpected GroupVersion string: a/b/c",
	} {
		hpa.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: version, Kind: "Deployment", Name: "web"}
		got, err := scales{c}.of(t.Context(), hpa)
		switch {
		case wanted == "" && (err != nil || got.replicas != 3):
			t.Errorf("%s: %v, %v", version, got, err)
		case wanted != "" && (err == nil || err.Error() != wanted):
			t.Errorf("%s: error %v, want %s", version, err, wanted)
		}
	}
}
