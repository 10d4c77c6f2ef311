package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// measuredOperations records the operations of a fixture.
func (h *fixture) measuredOperations() *[]string {
	all := &[]string{}
	h.Measured = func(plugin, operation string, migrated bool, _ time.Duration, err error) {
		*all = append(*all, fmt.Sprintf("%s %s migrated=%t failed=%t", operation, plugin, migrated, err != nil))
	}
	return all
}

// expectCounts checks how many volumes are wanted and mounted.
func (h *fixture) expectCounts(t *testing.T, when string, wanted, mounted map[string]int) {
	t.Helper()
	if w, m := h.Count(); !maps.Equal(w, wanted) || !maps.Equal(m, mounted) {
		t.Errorf("%s: %v are wanted and %v are mounted", when, w, m)
	}
}

func TestOperationsAreMeasuredByThePluginOfTheirVolume(t *testing.T) {
	h := newFixture(t)
	measured := h.measuredOperations()
	driver := &recordingCSI{}
	h.CSI, h.MigratePortworx = driver, true
	portworx := &corev1.PortworxVolumeSource{VolumeID: "v7"}
	pod := podOf(
		volumeOf("conf", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}),
		volumeOf("inline", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d.example.org"}}),
		volumeOf("old", corev1.VolumeSource{PortworxVolume: portworx}),
		h.claimed("data", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example.org"}}),
		h.claimed("older", corev1.PersistentVolumeSource{PortworxVolume: portworx}),
	)
	_, err := h.Mount(t.Context(), pod)
	must(t, err)
	must(t, h.Unmount(t.Context(), pod.UID))
	var want []string
	for _, operation := range []string{"volume_mount", "volume_unmount"} {
		want = append(want, operation+" kubernetes.io/configmap migrated=false failed=false",
			operation+" kubernetes.io/csi:d.example.org migrated=false failed=false", operation+" kubernetes.io/csi:pxd.portworx.com migrated=true failed=false",
			operation+" kubernetes.io/csi:d.example.org migrated=false failed=false", operation+" kubernetes.io/csi:pxd.portworx.com migrated=true failed=false")
	}
	if !slices.Equal(*measured, want) {
		t.Errorf("measured: %q", *measured)
	}
}

func TestVolumesAreCountedUntilTheyAreUnmounted(t *testing.T) {
	h := newFixture(t)
	measured := h.measuredOperations()
	scratch := volumeOf("scratch", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	secret := volumeOf("cred", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "late"}})
	unbound := volumeOf("data", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "none"}})
	unknown := volumeOf("unknown", corev1.VolumeSource{Quobyte: &corev1.QuobyteVolumeSource{}})
	pod := podOf(scratch, secret, unbound, unknown)
	const emptyDir, secrets = "kubernetes.io/empty-dir", "kubernetes.io/secret"
	if _, err := h.Mount(t.Context(), pod); err == nil {
		t.Error("a volume without its secret is mounted")
	}
	h.expectCounts(t, "without the secret", map[string]int{emptyDir: 1, secrets: 1}, map[string]int{emptyDir: 1})
	h.objects.secrets["late"] = &corev1.Secret{}
	if _, err := h.Mount(t.Context(), pod); err == nil {
		t.Error("a volume without its claim is mounted")
	}
	both := map[string]int{emptyDir: 1, secrets: 1}
	h.expectCounts(t, "with the secret", both, both)

	driver := &failingCSI{err: errors.New("busy")}
	h.CSI = driver
	if err := h.Unmount(t.Context(), pod.UID); err == nil {
		t.Error("a driver has failed, and the pod is unmounted")
	}
	h.expectCounts(t, "while a driver fails", map[string]int{}, both)
	driver.err = nil
	must(t, h.Unmount(t.Context(), pod.UID))
	h.expectCounts(t, "in the end", map[string]int{}, map[string]int{})
	if len(h.pods) != 0 {
		t.Error("the pod is remembered")
	}
	var want []string
	for _, o := range []struct {
		operation            string
		emptyDirFails, fails bool // fails is that of the secret
	}{{"volume_mount", false, true}, {"volume_mount", false, false}, {"volume_unmount", true, true}, {"volume_unmount", false, false}} {
		want = append(want, fmt.Sprintf("%s %s migrated=false failed=%t", o.operation, emptyDir, o.emptyDirFails),
			fmt.Sprintf("%s %s migrated=false failed=%t", o.operation, secrets, o.fails))
	}
	if !slices.Equal(*measured, want) {
		t.Errorf("measured: %q", *measured)
	}
}

// failingCSI fails to release volumes.
type failingCSI struct {
	recordingCSI
	err error
}

func (f *failingCSI) Unpublish(context.Context, types.UID) error { return f.err }
