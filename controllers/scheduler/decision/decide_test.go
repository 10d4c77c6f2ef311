package decision

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestPodGoesWhereItFitsBest(t *testing.T) {
	s := NewSnapshot()
	s.SetNode(sized("small", "2", "4Gi"))
	s.SetNode(sized("large", "8", "16Gi"))
	d := s.Decide(requesting("a", "1", "1Gi"), nil)
	if d.Node != "large" || d.Message() != "" {
		t.Errorf("got %+v", d)
	}
	d = s.Decide(requesting("a", "9", "1Gi"), nil)
	if want := "0/2 nodes are available: 2 Insufficient cpu."; d.Message() != want {
		t.Errorf("got %q, want %q", d.Message(), want)
	}
	if want := NodeAdded | NodeAllocatable | PodGone | PodShrunk; d.WokenBy != want {
		t.Errorf("woken by %b, want %b", d.WokenBy, want)
	}
}

func TestBoundPodsTakePartsOfTheirNode(t *testing.T) {
	s := NewSnapshot()
	bound := requesting("bound", "2", "1Gi")
	bound.Spec.NodeName = "a"
	s.SetPod(bound) // before its node
	s.SetNode(sized("a", "2", "4Gi"))
	if d := s.Decide(requesting("b", "1", "1Gi"), nil); d.Node != "" {
		t.Errorf("got %+v", d)
	}
	s.RemovePod(bound)
	if d := s.Decide(requesting("b", "1", "1Gi"), nil); d.Node != "a" {
		t.Errorf("got %+v", d)
	}
}

func sized(name, cpu, memory string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse(cpu),
			corev1.ResourceMemory: resource.MustParse(memory),
			corev1.ResourcePods:   resource.MustParse("110"),
		}},
	}
}

func requesting(name, cpu, memory string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse(cpu),
				corev1.ResourceMemory: resource.MustParse(memory),
			},
		}}}},
	}
}
