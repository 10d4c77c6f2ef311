package volume

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestExportsOfNFSServersAreMountedOnceByTheMountCommand(t *testing.T) {
	h := newFixture(t)
	var run [][]string
	var fails error
	h.MountCommand = func(_ context.Context, args ...string) error {
		run = append(run, args)
		if fails != nil {
			return fails
		}
		return h.mounter.Mount("nfs", args[len(args)-1], "")
	}
	pod := podOf(volumeOf("v", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas", Path: "/export", ReadOnly: true}}))
	for range 2 {
		mounted, err := h.Mount(t.Context(), pod)
		must(t, err)
		dir := filepath.Join(h.RootDir, "pods/u1/volumes/kubernetes.io~nfs/v")
		if m := mounted["v"]; m.HostPath != dir || !m.ReadOnly {
			t.Errorf("%+v", m)
		}
		if want := []string{"-t", "nfs", "-o", "ro", "--", "nas:/export", dir}; len(run) != 1 || !slices.Equal(run[0], want) {
			t.Errorf("mount was run with %v", run)
		}
	}
	must(t, h.Unmount(t.Context(), "u1"))
	if under, err := h.mounter.Under(h.RootDir); err != nil || len(under) > 0 {
		t.Errorf("left: %v, %v", under, err)
	}
	fails = errors.New("mount: bad usage")
	if _, err := h.Mount(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "bad usage; the node needs the NFS client") {
		t.Error(err)
	}
}
