package volume

import (
	"context"
	"fmt"
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
	leaving := m.leave(state)
	began := m.Clock.Now()
	err := m.unmount(ctx, uid)
	took := m.Clock.Since(began)
	for _, p := range leaving {
		m.Measured(p.name, "volume_unmount", p.migrated, took, err)
	}
	if err != nil {
		return err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	state.leaving = nil
	return nil
}

// leave forgets the volumes of a pod, and returns the plugins of those that are still mounted.
func (m *Manager) leave(s *state) []plugin {
	m.mutex.Lock()
	s.wanted, s.leaving = nil, append(s.leaving, plugins(s.volumes)...)
	leaving := s.leaving
	m.mutex.Unlock()
	m.remember(s, nil)
	return leaving
}

// unmount unmounts and removes what belongs to a pod.
func (m *Manager) unmount(ctx context.Context, uid types.UID) error {
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
	dir := m.layout.pod(uid)
	mounts, err := m.Mounter.Under(dir)
	if err != nil {
		return fmt.Errorf("unmounting the volumes of pod %s: %w", uid, err)
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
	if err := RemoveTree(ctx, dir); err != nil {
		return fmt.Errorf("removing the directory of pod %s: %w", uid, err)
	}
	return nil
}
