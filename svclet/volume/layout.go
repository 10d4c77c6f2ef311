package volume

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Names and modes of kubelet's directories.
const (
	podsDir    = "pods"
	volumesDir = "volumes"
	pluginsDir = "plugins"
	subPathDir = "volume-subpaths"

	emptyDirPlugin = "kubernetes.io~empty-dir"
	localPlugin    = "kubernetes.io~local-volume"

	privateDir fs.FileMode = 0o750
)

// layout returns the paths below the agent's directory. The names passed to it
// have been checked.
type layout struct{ root string }

func (l layout) pod(uid types.UID) string { return filepath.Join(l.root, podsDir, string(uid)) }

func (l layout) volume(uid types.UID, plugin, name string) string {
	return filepath.Join(l.pod(uid), volumesDir, plugin, name)
}

// containers returns the directory of the pod's containers, which is made with the first of them.
func (l layout) containers(uid types.UID) string { return filepath.Join(l.pod(uid), "containers") }

// ready returns the path of the mark that a volume has been set up: afterwards its
// mode and owner belong to the pod.
func (l layout) ready(uid types.UID, name string) string {
	return filepath.Join(l.pod(uid), pluginsDir, emptyDirPlugin, name, "ready")
}

func (l layout) subPath(uid types.UID, volume, container string, index int) string {
	return filepath.Join(l.pod(uid), subPathDir, volume, container, strconv.Itoa(index))
}

// check refuses a pod with a name that would lead out of the pod's directory. The
// API server validates names; manifests on disk may have invalid ones.
func (l layout) check(pod *corev1.Pod) error {
	if !isName(string(pod.UID)) {
		return fmt.Errorf("uid %q of pod %s/%s cannot be a directory's name", pod.UID, pod.Namespace, pod.Name)
	}
	for _, v := range pod.Spec.Volumes {
		if !isName(v.Name) {
			return fmt.Errorf("name %q of a volume of pod %s/%s cannot be a directory's name", v.Name, pod.Namespace, pod.Name)
		}
	}
	return nil
}

func isName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.ContainsAny(s, "/\x00")
}

func (l layout) makePodDirs(uid types.UID) error {
	for _, dir := range []string{"", volumesDir, pluginsDir} {
		if err := os.MkdirAll(filepath.Join(l.pod(uid), dir), privateDir); err != nil {
			return fmt.Errorf("making the pod's directories: %w", err)
		}
	}
	return nil
}

// PodDir returns the directory of a pod.
func (m *Manager) PodDir(uid types.UID) string { return m.layout.pod(uid) }

// HostsFile returns the path of a pod's hosts file.
func (m *Manager) HostsFile(uid types.UID) string {
	return filepath.Join(m.layout.pod(uid), "etc-hosts")
}

// TerminationLog creates an empty termination message file for an attempt of a
// container, and returns its path.
func (m *Manager) TerminationLog(uid types.UID, container string) (string, error) {
	if !isName(string(uid)) || !isName(container) {
		return "", fmt.Errorf("container %q of pod %q cannot have a directory", container, uid)
	}
	dir := filepath.Join(m.layout.containers(uid), container)
	if err := os.MkdirAll(dir, privateDir); err != nil {
		return "", fmt.Errorf("making the directory of container %s: %w", container, err)
	}
	name := make([]byte, 4)
	if _, err := rand.Read(name); err != nil {
		return "", fmt.Errorf("naming the termination log of container %s: %w", container, err)
	}
	path := filepath.Join(dir, hex.EncodeToString(name))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return "", fmt.Errorf("making the termination log of container %s: %w", container, err)
	}
	// Any user may write to the file, whatever the agent's umask.
	return path, errors.Join(file.Chmod(0o666), file.Close())
}

// UIDs returns the UIDs of all pods that have a directory on this node.
func (m *Manager) UIDs() ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(m.layout.root, podsDir))
	if err != nil {
		return nil, fmt.Errorf("reading the directory of pods: %w", err)
	}
	var uids []types.UID
	for _, e := range entries {
		if e.IsDir() {
			uids = append(uids, types.UID(e.Name()))
		}
	}
	return uids, nil
}

// makeDir creates a directory with exactly the given mode, whatever the agent's
// umask.
func makeDir(path string, mode fs.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Perm() == mode {
		return nil
	}
	return os.Chmod(path, mode)
}
