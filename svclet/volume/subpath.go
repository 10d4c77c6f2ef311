package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// SubPath bind-mounts a path inside a volume for the container's volume mount with
// the given index, and returns the host path to mount into the container. It
// creates a missing directory, with the mode of the volume. subPath is the mount's
// subPath, or its expanded subPathExpr. The bind mount stays until Unmount; a
// repeated call follows changes of the path.
//
// No symlink leads out of the volume, even if its users change it concurrently.
// Errors are kubelet's and do not reveal anything about the node; details are only
// logged.
func (m *Manager) SubPath(ctx context.Context, pod *corev1.Pod, container *corev1.Container, index int, volume Mounted, subPath string) (string, error) {
	if filepath.IsAbs(subPath) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", subPath)
	}
	if err := checkNoParent(subPath); err != nil {
		return "", fmt.Errorf("unable to provision SubPath `%s`: %w", subPath, err)
	}
	if err := m.layout.check(pod); err != nil {
		return "", err
	}
	if index < 0 || index >= len(container.VolumeMounts) {
		return "", fmt.Errorf("container %q has no volume mount of index %d", container.Name, index)
	}
	mount := &container.VolumeMounts[index]
	if !isName(container.Name) || !isName(mount.Name) {
		return "", fmt.Errorf("names of container %q and volume %q cannot be those of directories", container.Name, mount.Name)
	}
	_, done := m.hold(pod.UID)
	defer done()

	target := m.layout.subPath(pod.UID, mount.Name, container.Name, index)
	err := m.bindSubPath(volume.HostPath, subPath, target)
	if err == nil {
		return target, nil
	}
	klog.FromContext(ctx).Error(err, "Failed to prepare subPath for volume mount", "pod", klog.KObj(pod), "container", container.Name, "volumeMount", mount.Name)
	what := "prepare subPath"
	if errors.Is(err, errMakingSubPath) {
		what = "create subPath directory"
	}
	return "", fmt.Errorf("failed to %s for volumeMount %q of container %q", what, mount.Name, container.Name)
}

// errMakingSubPath marks errors of creating a directory, as opposed to mounting
// it.
var errMakingSubPath = errors.New("making the directory")
