package volume

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// mountOptionsClaim returns a pod with a volume of this source, whose PersistentVolume has the option
// noexec, or those of the annotation if it is not empty.
func (h *fixture) mountOptionsClaim(source corev1.PersistentVolumeSource, annotation string) *corev1.Pod {
	pod := podOf(h.claimed("data", source))
	pv := h.objects.volumes["pv-data"]
	pv.Spec.MountOptions = []string{"noexec"}
	if annotation != "" {
		pv.Annotations = map[string]string{corev1.MountOptionAnnotation: annotation}
	}
	return pod
}

func TestVolumesAreMountedWithTheOptionsOfTheAnnotationOrElseOfTheField(t *testing.T) {
	for annotation, want := range map[string]string{"": "noexec", "nodev,,nosuid": "nodev,nosuid"} {
		h := newFixture(t)
		var calls []string
		h.MountCommand = func(_ context.Context, args ...string) error {
			calls = append(calls, strings.Join(args, " "))
			return nil
		}
		dir := t.TempDir()
		local := h.mountOptionsClaim(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}}, annotation)
		for range 2 {
			if _, err := h.Mount(t.Context(), local); err != nil {
				t.Error(err)
			}
		}
		target := h.layout.volume("u1", localPlugin, "pv-data")
		remounted := "-o bind,remount," + want + " -- " + dir + " " + target
		if len(h.mounter.mounts) != 1 || !slices.Equal(calls, []string{remounted}) {
			t.Errorf("local, annotation %q: mounted %v, calls %q, want %q", annotation, h.mounter.mounts, calls, remounted)
		}

		calls = nil
		nfs := h.mountOptionsClaim(corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/x"}}, annotation)
		nfs.UID = "u2"
		if _, err := h.Mount(t.Context(), nfs); err != nil {
			t.Error(err)
		}
		if len(calls) != 1 || !strings.Contains(calls[0], " -o "+want+" -- ") {
			t.Errorf("nfs, annotation %q: %q", annotation, calls)
		}
	}
}

func TestALocalVolumeIsNotMountedWithoutItsOptions(t *testing.T) {
	h := newFixture(t)
	failure := errors.New("bad option")
	h.MountCommand = func(context.Context, ...string) error { return failure }
	pod := h.mountOptionsClaim(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: t.TempDir()}}, "")
	for range 2 {
		if _, err := h.Mount(t.Context(), pod); !errors.Is(err, failure) || len(h.mounter.mounts) > 0 {
			t.Errorf("mounted %v, %v", h.mounter.mounts, err)
		}
	}
	failure = nil
	if _, err := h.Mount(t.Context(), pod); err != nil || len(h.mounter.mounts) != 1 {
		t.Errorf("mounted %v, %v", h.mounter.mounts, err)
	}
}

func TestVolumesOfTypeHostPathHaveNoMountOptions(t *testing.T) {
	h := newFixture(t)
	pod := h.mountOptionsClaim(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}, "")
	_, err := h.Mount(t.Context(), pod)
	if want := `MountVolume.MountOptionSupport check failed for volume "data" : mount options are not supported for this volume type`; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
