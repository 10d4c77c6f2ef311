package podresize

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func start(t *testing.T, enabled bool) *admissiontest.Plugin {
	t.Helper()
	node := func(name, os string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: list("2", "1Gi")}}
		if os != "" {
			n.Labels = map[string]string{corev1.LabelOSStable: os}
		}
		return n
	}
	return admissiontest.Server{Objects: []runtime.Object{node("linux", "linux"), node("windows", "windows"), node("bare", "")}}.
		Start(t, func(plugins *admission.Plugins) { Register(plugins, func() bool { return enabled }) })
}

func TestAPodIsNotResizedToMoreThanItsNodeHas(t *testing.T) {
	for _, test := range []struct {
		rule, node, cpu, memory string
		subresource             string
		off                     bool
		want                    string
		cause                   metav1.CauseType
	}{
		{rule: "all of the node", node: "linux", cpu: "2", memory: "1Gi"},
		{rule: "a node without a label", node: "bare", cpu: "2", memory: "1Gi"},
		{rule: "more cpu", node: "linux", cpu: "2001m", memory: "1Gi",
			want: "node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000", cause: "NodeCapacity"},
		{rule: "more of both", node: "bare", cpu: "3", memory: "2Gi", cause: "NodeCapacity",
			want: "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824"},
		{rule: "another operating system", node: "windows", cpu: "2", memory: "1Gi",
			want: `pod resize is only supported on linux nodes, node "windows" is "windows"`, cause: "UnsupportedPlatform"},
		{rule: "a node that does not exist", node: "gone", cpu: "2", memory: "1Gi", want: `node "gone" not found`},
		{rule: "no node", cpu: "3", memory: "1Gi"},
		{rule: "no change", node: "gone", cpu: "1", memory: "1Mi"},
		{rule: "another subresource", node: "gone", cpu: "3", memory: "1Gi", subresource: "status"},
		{rule: "an earlier release", node: "gone", cpu: "3", memory: "1Gi", off: true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			pod := func(cpu, memory string) *corev1.Pod {
				return admissiontest.Pod(func(p *corev1.Pod) {
					p.Spec.NodeName, p.Spec.Containers[0].Resources.Requests = test.node, list(cpu, memory)
				})
			}
			if test.subresource == "" {
				test.subresource = "resize"
			}
			err := start(t, !test.off).Send(t, admissiontest.Request{Object: pod(test.cpu, test.memory), Old: pod("1", "1Mi"), Subresource: test.subresource})
			switch {
			case test.want == "" && err == nil:
			case test.want == "" || !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), "is forbidden: "+test.want):
				t.Errorf("got %v, want %q", err, test.want)
			case apierrors.HasStatusCause(err, test.cause) != (test.cause != ""):
				t.Errorf("%+v has not the cause %q", err, test.cause)
			}
		})
	}
}
