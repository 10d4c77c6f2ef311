package volume

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/podspec"
)

// makeNested creates the mount points of other volumes inside this one: a
// container cannot create them in a read-only volume.
func makeNested(pod *corev1.Pod, volume, dir string) error {
	var nested []string
	for _, c := range podspec.All(&pod.Spec) {
		nested = append(nested, nestedIn(c.VolumeMounts, volume)...)
	}
	if len(nested) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range nested {
		if err := root.MkdirAll(name, 0o755); err != nil {
			return fmt.Errorf("unable to create nested volume mountpoints: %w", err)
		}
	}
	return nil
}

// nestedIn returns a container's mount points inside the volume's mount, relative
// to it, without those that are nested in another one of them.
func nestedIn(mounts []corev1.VolumeMount, volume string) []string {
	var all []string
	for _, m := range mounts {
		all = append(all, path.Clean("/"+m.MountPath))
	}
	slices.Sort(all)
	var nested []string
	for _, m := range mounts {
		if m.Name != volume {
			continue
		}
		parent := strings.TrimSuffix(path.Clean("/"+m.MountPath), "/") + "/"
		var found []string
		for _, point := range all {
			inside := func(outer string) bool { return strings.HasPrefix(point, outer+"/") }
			if strings.HasPrefix(point, parent) && point != parent && !slices.ContainsFunc(found, inside) {
				found = append(found, point)
				nested = append(nested, strings.TrimPrefix(point, parent))
			}
		}
	}
	return nested
}
