package validation

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestEveryFieldIsTriedAloneAndLeavesTheBaseAsItIs(t *testing.T) {
	base := map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"containers": []any{map[string]any{"name": "web"}}}}
	paths := map[string]bool{}
	for _, c := range Cases(base, reflect.TypeFor[corev1.Pod]()) {
		paths[c.Path] = true
		if reflect.DeepEqual(c.Object, base) {
			t.Errorf("%s = %v changes nothing", c.Path, c.Value)
		}
	}
	for _, path := range []string{"metadata.labels", "spec.containers", "spec.containers[0].ports[0].hostPort", "spec.affinity.nodeAffinity", "spec.tolerations[0].operator"} {
		if !paths[path] {
			t.Errorf("no case for %s", path)
		}
	}
	for _, c := range Cases(map[string]any{"hostPath": map[string]any{"path": "/"}, "capacity": map[string]any{}}, reflect.TypeFor[corev1.PersistentVolumeSpec]()) {
		if c.Path == "csi.driver" && (c.Object["hostPath"] != nil || c.Object["capacity"] == nil) {
			t.Errorf("the case of a member of a union has another one, or lacks a field that is none: %v", c.Object)
		}
	}
	if got := lookup(base, []any{"spec", "containers", 0, "name"}); got != "web" {
		t.Errorf("the base has changed: %v", base)
	}
}
