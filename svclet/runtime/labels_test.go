package runtime

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func labelledPod() *corev1.Pod {
	grace := int64(20)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: "u", Namespace: "ns", Name: "n", Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"note": "y"},
		},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace},
	}
}

func TestSandboxLabelsIdentifyThePod(t *testing.T) {
	p := labelledPod()
	labels := SandboxLabels(p)
	want := map[string]string{
		"app": "x", "io.kubernetes.pod.name": "n", "io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.uid": "u",
	}
	if diff := cmp.Diff(want, labels); diff != "" {
		t.Error(diff)
	}
	if identity, ok := ReadPodIdentity(labels); !ok || identity != (PodIdentity{UID: "u", Namespace: "ns", Name: "n"}) {
		t.Errorf("identity %+v", identity)
	}
	if diff := cmp.Diff(p.Labels, ReadPodLabels(labels)); diff != "" {
		t.Error(diff)
	}
	SandboxAnnotations(p)["more"] = "z"
	if len(p.Annotations) != 1 {
		t.Error("the pod's annotations are changed")
	}
	delete(labels, PodUIDLabel)
	if _, ok := ReadPodIdentity(labels); ok {
		t.Error("a sandbox without the UID label belongs to a pod")
	}
}

func TestContainerRecordsRoundTrip(t *testing.T) {
	p := labelledPod()
	container := &corev1.Container{
		Name: "c", TerminationMessagePath: "/m", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		Ports:     []corev1.ContainerPort{{ContainerPort: 80}},
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"stop"}}}},
	}
	annotations, err := ContainerAnnotations(p, container, 4, 0xdeadbeef, map[string]string{"device": "d", HashAnnotation: "0"})
	if err != nil {
		t.Fatal(err)
	}
	if annotations["device"] != "d" || annotations[HashAnnotation] != "deadbeef" || annotations[RestartCountAnnotation] != "4" {
		t.Errorf("annotations %v", annotations)
	}
	want := ContainerRecord{
		Name: "c", SpecHash: 0xdeadbeef, RestartCount: 4, TerminationMessagePath: "/m", TerminationMessagePolicy: "File", Grace: 20,
		PreStop: container.Lifecycle.PreStop, Ports: container.Ports,
	}
	if diff := cmp.Diff(want, ReadContainerRecord(ContainerLabels(p, container), annotations)); diff != "" {
		t.Error(diff)
	}
}

func TestTheGracePeriodOfADeletionTakesPrecedence(t *testing.T) {
	p, deletion := labelledPod(), int64(0)
	p.DeletionGracePeriodSeconds = &deletion
	annotations, err := ContainerAnnotations(p, &corev1.Container{Name: "c"}, 0, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := ReadContainerRecord(nil, annotations).Grace; got != 0 {
		t.Errorf("grace %d", got)
	}
}

func TestInvalidAnnotationsAreLeftZero(t *testing.T) {
	got := ReadContainerRecord(nil, map[string]string{
		HashAnnotation: "xyz", RestartCountAnnotation: "-1", TerminationGraceAnnotation: "soon", DeletionGraceAnnotation: "-5",
		PreStopAnnotation: "{", PortsAnnotation: "{}",
	})
	if diff := cmp.Diff(ContainerRecord{Grace: 30}, got); diff != "" {
		t.Error(diff)
	}
}
