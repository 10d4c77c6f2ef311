package volume

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/csi"
)

// recordingCSI records the volumes that it publishes, whose usage it returns.
type recordingCSI struct {
	published []csi.Volume
	usage     csi.Usage
	// unpublish is called when volumes are unpublished; nil does nothing.
	unpublish func()
	// dir has the volumes; owns makes their files belong to the fsGroup of pods.
	dir  string
	owns bool
}

func (r *recordingCSI) Publish(_ context.Context, v csi.Volume) (csi.Published, error) {
	r.published = append(r.published, v)
	published := csi.Published{Path: filepath.Join(r.dir, "/published", v.Name), Measurable: true}
	if r.owns {
		return published, v.Own(published.Path)
	}
	return published, nil
}

func (r *recordingCSI) Unpublish(context.Context, types.UID) error {
	if r.unpublish != nil {
		r.unpublish()
	}
	return nil
}

func (r *recordingCSI) Usage(context.Context, types.UID, string) (csi.Usage, error) {
	return r.usage, nil
}

// claimed adds a claim that is bound to a volume of this source, and returns a volume of a
// pod.
func (h *fixture) claimed(name string, source corev1.PersistentVolumeSource) corev1.Volume {
	h.objects.claims[name] = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(name)},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	h.objects.volumes["pv-"+name] = &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: source, ClaimRef: &corev1.ObjectReference{UID: types.UID(name)}},
	}
	return volumeOf(name, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
}

func TestVolumesOfPortworxAreMountedByTheirCSIDriver(t *testing.T) {
	h := newFixture(t)
	driver := &recordingCSI{}
	h.CSI = driver
	source := &corev1.PortworxVolumeSource{VolumeID: "v7", FSType: "ext4", ReadOnly: true}
	pod := podOf(volumeOf("inline", corev1.VolumeSource{PortworxVolume: source}), h.claimed("data", corev1.PersistentVolumeSource{PortworxVolume: source}))
	if _, err := h.Mount(t.Context(), pod); err == nil || len(driver.published) != 0 {
		t.Errorf("without the feature gate: %v, %v", driver.published, err)
	}

	h.MigratePortworx = true
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	if mounted["inline"].HostPath != "/published/inline" || mounted["data"].HostPath != "/published/data" || len(driver.published) != 2 {
		t.Fatalf("mounted %v, published %v", mounted, driver.published)
	}
	for _, v := range driver.published {
		if s := v.PV.Spec.CSI; s.Driver != "pxd.portworx.com" || s.VolumeHandle != "v7" || s.FSType != "ext4" || !v.ReadOnly && !s.ReadOnly {
			t.Errorf("volume %s: %v", v.Name, s)
		}
	}
	if h.objects.volumes["pv-data"].Spec.PortworxVolume == nil {
		t.Error("the PersistentVolume that other parts see has been changed")
	}
}

func TestEachMeasurementOfAnAbnormalVolumeIsReported(t *testing.T) {
	h := newFixture(t)
	driver := &recordingCSI{}
	var reported []string
	h.CSI, h.Abnormal = driver, func(uid types.UID, volume, message string) {
		reported = append(reported, string(uid)+" "+volume+": "+message)
	}
	pod := podOf(h.claimed("data", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}))
	_, err := h.Mount(t.Context(), pod)
	must(t, err)
	for _, message := range []string{"", "the disk is gone"} {
		driver.usage.Health = &csi.Health{Abnormal: message != "", Message: message}
		_, err := h.Usage(t.Context(), pod.UID)
		must(t, err)
		if got := h.AbnormalClaims()[pod.UID]; !maps.Equal(got, map[string]bool{"data": message != ""}) {
			t.Errorf("with the message %q: %v", message, got)
		}
	}
	if want := []string{"u1 data: the disk is gone"}; !slices.Equal(reported, want) {
		t.Errorf("reported %v, want %v", reported, want)
	}
}

func TestTheFilesOfAVolumeGetTheFSGroupWhenItIsMountedAndNotWhenItIsRefreshed(t *testing.T) {
	for _, c := range []struct {
		rule   string
		policy *corev1.PodFSGroupChangePolicy
		// again is the file's mode after another mount, of a directory that has the group.
		again fs.FileMode
	}{
		{"by default always", nil, 0o660},
		{"always", ptr.To(corev1.FSGroupChangeAlways), 0o660},
		{"only if the directory does not have it", ptr.To(corev1.FSGroupChangeOnRootMismatch), 0o600},
	} {
		t.Run(c.rule, func(t *testing.T) {
			h := newFixture(t)
			driver := &recordingCSI{dir: t.TempDir(), owns: true}
			h.CSI = driver
			dir := filepath.Join(driver.dir, "published", "data")
			key := filepath.Join(dir, "key")
			must(t, os.MkdirAll(dir, 0o700))
			must(t, os.WriteFile(key, nil, 0o600))
			pod := podOf(h.claimed("data", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}))
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To(int64(os.Getgid())), FSGroupChangePolicy: c.policy}
			mount := func() {
				_, err := h.Mount(t.Context(), pod)
				must(t, err)
			}
			expect := func(when string, want fs.FileMode) {
				t.Helper()
				info, err := os.Stat(key)
				must(t, err)
				if got := info.Mode().Perm(); got != want {
					t.Errorf("%s: %o, want %o", when, got, want)
				}
			}
			mount()
			expect("mounted", 0o660)

			// The pod wants other modes, and the driver has nothing to do.
			must(t, os.Chmod(key, 0o600))
			must(t, os.Chmod(dir, 0o700))
			driver.owns = false
			must(t, h.Refresh(t.Context(), pod))
			expect("refreshed", 0o600)

			driver.owns = true
			must(t, os.Chmod(dir, groupMode(fs.ModeDir|0o700, false)))
			mount()
			expect("mounted again", c.again)
		})
	}
}
