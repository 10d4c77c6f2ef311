package nodefeatures

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func start(t *testing.T, enabled bool) *admissiontest.Plugin {
	t.Helper()
	node := func(name string, features ...string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{DeclaredFeatures: features}}
	}
	return admissiontest.Server{Objects: []runtime.Object{node("old"), node("new", "InPlacePodLevelResourcesVerticalScaling", "Unknown")}}.
		Start(t, func(plugins *admission.Plugins) {
			Register(plugins, func() (bool, *version.Version, error) { return enabled, version.MajorMinor(1, 36), nil })
		})
}

func TestAnUpdateNeedsTheFeaturesOfTheNode(t *testing.T) {
	const lacks = `pod update requires features InPlacePodLevelResourcesVerticalScaling which are not available on node "old"`
	for _, test := range []struct {
		rule, node, cpu string
		subresource     string
		off             bool
		want            string
	}{
		{rule: "a node with the feature", node: "new", cpu: "2", subresource: "resize"},
		{rule: "a node without it", node: "old", cpu: "2", subresource: "resize", want: lacks},
		{rule: "an update of the pod", node: "old", cpu: "2", want: lacks},
		{rule: "nothing that needs a feature", node: "old", cpu: "1", subresource: "resize"},
		{rule: "another subresource", node: "old", cpu: "2", subresource: "status"},
		{rule: "a node that does not exist", node: "gone", cpu: "2", subresource: "resize", want: `node "gone" not found`},
		{rule: "no node", cpu: "2", subresource: "resize"},
		{rule: "an earlier release", node: "old", cpu: "2", subresource: "resize", off: true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			pod := func(cpu string) *corev1.Pod {
				return admissiontest.Pod(func(p *corev1.Pod) {
					p.Spec.NodeName = test.node
					p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
				})
			}
			err := start(t, !test.off).Send(t, admissiontest.Request{Object: pod(test.cpu), Old: pod("1"), Subresource: test.subresource})
			switch {
			case test.want == "" && err == nil:
			case test.want == "" || !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), "is forbidden: "+test.want):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
