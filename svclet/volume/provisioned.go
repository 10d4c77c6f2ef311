package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/localpath"
	"svc.dev/svc/svclet/localvolume"
)

// sharedDir are the permissions of a volume's directory: containers of any user may
// write to it. No other process of the node reaches it, as that of all volumes is
// private.
const sharedDir = 0o777

// makeProvisioned creates the directory of a volume of the provisioner
// svc.dev/local-path on this node, if it does not exist.
func (m *Manager) makeProvisioned(pv *corev1.PersistentVolume) error {
	own := localpath.Made(pv) && pv.Labels[localpath.NodeLabel] == m.NodeName
	if m.LocalDir == "" || !own || !isName(pv.Name) || pv.Spec.Local.Path != localpath.Directory(m.LocalDir, pv.Name) {
		return nil
	}
	if pv.DeletionTimestamp != nil {
		return fmt.Errorf("volume %q is being deleted", pv.Name)
	}
	if err := os.MkdirAll(m.LocalDir, privateDir); err != nil {
		return err
	}
	if _, err := os.Stat(pv.Spec.Local.Path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The directory gets its name with its permissions, which the umask restricts.
	made, err := os.MkdirTemp(m.LocalDir, ".new-")
	if err != nil {
		return err
	}
	if err := os.Chmod(made, sharedDir); err != nil {
		return err
	}
	if err := os.Rename(made, pv.Spec.Local.Path); err != nil {
		return errors.Join(err, os.Remove(made))
	}
	if m.LocalCreated != nil {
		m.LocalCreated()
	}
	return nil
}

// RemoveLocal removes the directory of a volume of the provisioner svc.dev/local-path,
// with its content. The error is [localvolume.ErrInUse] if a pod uses it. It neither
// follows symlinks nor enters mounts.
func (m *Manager) RemoveLocal(ctx context.Context, dir string) error {
	if filepath.Dir(dir) != filepath.Clean(m.LocalDir) || !isName(filepath.Base(dir)) {
		return fmt.Errorf("invalid volume %s: must be a directory in %s", dir, m.LocalDir)
	}
	used, err := m.usedElsewhere(dir, "")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case used:
		return fmt.Errorf("%s: %w", dir, localvolume.ErrInUse)
	}
	return RemoveTree(ctx, dir)
}
