package resize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func testPod(uid, cpu string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid), Annotations: map[string]string{"of": "the object"}}}
	p.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")},
	}}}
	return p
}

func load(t *testing.T, dir string) *Allocations {
	t.Helper()
	a, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func set(t *testing.T, a *Allocations, p *corev1.Pod) {
	t.Helper()
	if err := a.Set(p); err != nil {
		t.Fatal(err)
	}
}

func TestAPodKeepsWhatItWasAllocatedUntilItGetsMore(t *testing.T) {
	dir := t.TempDir()
	a := load(t, dir)
	set(t, a, testPod("p", "1"))
	asks := testPod("p", "2")
	for range 2 { // also after a restart
		has, resized := a.Of(asks)
		requests := has.Spec.Containers[0].Resources.Requests
		if requests.Cpu().String() != "1" || requests.StorageEphemeral().String() != "1Gi" || has.Annotations["of"] == "" || resized {
			t.Errorf("%v, resized %t", requests, resized)
		}
		if asks.Spec.Containers[0].Resources.Requests.Cpu().String() != "2" {
			t.Fatal("the object has been changed")
		}
		a = load(t, dir)
	}
	set(t, a, asks)
	set(t, a, asks)
	for range 2 {
		if has, resized := a.Of(asks); has != asks || !resized {
			t.Errorf("%v, resized %t", has.Spec.Containers, resized)
		}
		a = load(t, dir)
	}
	unknown := testPod("q", "1")
	if has, resized := a.Of(unknown); has != unknown || resized {
		t.Error("a pod that is not known must have what it asks for")
	}
}

func TestEndedPodsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	a := load(t, dir)
	set(t, a, testPod("p", "1"))
	set(t, a, testPod("q", "1"))
	if err := a.Retain([]*corev1.Pod{testPod("q", "1")}); err != nil {
		t.Fatal(err)
	}
	a = load(t, dir)
	if asks := testPod("p", "2"); len(a.pods) != 1 {
		t.Error(a.Of(asks))
	}
}

func TestADamagedCheckpointNamesItsFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, checkpointName)
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

func TestAnAllocationThatCannotBeSavedIsNotMade(t *testing.T) {
	a := load(t, filepath.Join(t.TempDir(), "absent"))
	if err := a.Set(testPod("p", "1")); err == nil {
		t.Error("no error")
	}
	if asks := testPod("p", "2"); len(a.pods) != 0 {
		t.Error(a.Of(asks))
	}
}
