package volume

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Unmount unmounts and removes everything on this node that belongs to a pod whose
// containers are gone. It is not an error if there is nothing.
//
// It never leaves the pod's directory: mounts in it are detached, the latest
// first, and if one remains, nothing is removed; symlinks are removed and not
// followed.
func (m *Manager) Unmount(ctx context.Context, uid types.UID) error {
	if !isName(string(uid)) {
		return fmt.Errorf("uid %q cannot be a directory's name", uid)
	}
	state, done := m.hold(uid)
	defer done()
	leaving, expanded := m.leave(state)
	began := m.Clock.Now()
	err := m.unmount(ctx, uid)
	took := m.Clock.Since(began)
	for _, p := range leaving {
		m.Measured(p.name, "volume_unmount", p.migrated, took, err)
	}
	if err != nil {
		return err
	}
	m.forgetExpansions(uid, expanded)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	state.leaving = nil
	return nil
}

// leave forgets the volumes of a pod, and returns the plugins of those that are still mounted, and
// the keys by which volumes were expanded.
func (m *Manager) leave(s *state) (leaving []plugin, expanded []string) {
	m.mutex.Lock()
	s.wanted, s.leaving = nil, append(s.leaving, plugins(s.volumes)...)
	leaving = s.leaving
	for i := range s.volumes {
		if key := s.volumes[i].grows; key != "" {
			expanded = append(expanded, key)
		}
	}
	m.mutex.Unlock()
	m.remember(s, nil, nil)
	return leaving, expanded
}

// unmount unmounts and removes what belongs to a pod. The bind mounts of subPaths come first, as
// in kubelet (GenerateUnmountVolumeFunc): they keep the file system of their volume in use, whose
// device its driver may release.
func (m *Manager) unmount(ctx context.Context, uid types.UID) error {
	dir := m.layout.pod(uid)
	if err := m.detach(uid, filepath.Join(dir, subPathDir)); err != nil {
		return err
	}
	if m.CSI != nil {
		if err := m.CSI.Unpublish(ctx, uid); err != nil {
			return fmt.Errorf("unmounting the volumes of pod %s: %w", uid, err)
		}
	}
	if m.flex != nil {
		if err := m.flex.Unpublish(ctx, uid); err != nil {
			return fmt.Errorf("unmounting the volumes of pod %s: %w", uid, err)
		}
	}
	if err := m.detach(uid, dir); err != nil {
		return err
	}
	if err := m.releaseDevices(uid); err != nil {
		return fmt.Errorf("unmounting the volumes of pod %s: %w", uid, err)
	}
	if err := RemoveTree(ctx, dir); err != nil {
		return fmt.Errorf("removing the directory of pod %s: %w", uid, err)
	}
	return nil
}

// detach unmounts what is mounted in a directory of a pod.
func (m *Manager) detach(uid types.UID, dir string) error {
	mounts, err := m.Mounter.Under(dir)
	if err != nil {
		return fmt.Errorf("unmounting the volumes of pod %s: %w", uid, err)
	}
	if len(mounts) == 0 {
		return nil
	}
	// Mounts inside another mount were mounted after it.
	for _, mount := range slices.Backward(mounts) {
		if err := m.Mounter.Unmount(mount.Path); err != nil {
			return fmt.Errorf("unmounting the volumes of pod %s: %w", uid, err)
		}
	}
	if mounts, err = m.Mounter.Under(dir); err != nil {
		return fmt.Errorf("unmounting the volumes of pod %s: %w", uid, err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("removing the directory of pod %s: %s is still mounted", uid, mounts[0].Path)
	}
	return nil
}
