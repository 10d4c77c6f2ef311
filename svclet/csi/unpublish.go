package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"
)

// Unpublish makes drivers release the volumes of a pod whose containers are gone, and
// those that no other pod uses any more. It is not an error if there are none.
func (m *Manager) Unpublish(ctx context.Context, uid types.UID) error {
	records, err := m.layout.of(uid)
	errs := []error{err}
	for dir, r := range records {
		if err := m.release(ctx, uid, dir, r); err != nil {
			errs = append(errs, fmt.Errorf("UnmountVolume.TearDown failed for volume %q : %w", r.Volume, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	m.tokens.forget(uid)
	m.forgetInline(uid)
	m.o.Expansion.ForgetPod(uid)
	for _, name := range m.InUse() {
		m.use(name, uid, false) // also of volumes that were not attached in time
	}
	return nil
}

// release makes the driver unpublish one volume of a pod, and unstage it if it was the
// last one.
func (m *Manager) release(ctx context.Context, uid types.UID, dir string, r record) error {
	unlock := m.volumes.lock(r.key())
	defer unlock()
	target := m.layout.target(uid, r)
	if r.Begun {
		if err := m.unpublish(ctx, target, r); err != nil {
			return err
		}
	}
	// The volume is unstaged before its last record is removed: after a crash in
	// between, this is repeated.
	if err := m.unstage(ctx, dir, r); err != nil {
		return err
	}
	if err := r.remove(dir, target); err != nil {
		return fmt.Errorf("removing %s, which CSI driver %s has left: %w", dir, r.Driver, err)
	}
	if parent := filepath.Dir(target); r.Block {
		if err := os.Remove(parent); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
	if r.Attached {
		m.use(uniqueName(r), uid, false)
	}
	if used, err := m.usedByOthers(dir, r); err == nil && !used {
		m.o.Expansion.Forget(r.key())
	}
	return nil
}

func (m *Manager) unpublish(ctx context.Context, target string, r record) error {
	d, err := m.drivers.get(r.Driver)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := d.NodeUnpublishVolume(call, &spec.NodeUnpublishVolumeRequest{VolumeId: r.Handle, TargetPath: target}); err != nil {
		return fmt.Errorf("NodeUnpublishVolume of CSI driver %s: %w", r.Driver, err)
	}
	return m.checkUnmounted(target, r)
}

// unstage makes the driver unstage a volume unless another pod has a record of it.
func (m *Manager) unstage(ctx context.Context, dir string, r record) error {
	stage := m.layout.stage(r.Driver, r.Handle)
	staged, err := readRecord(stage)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if used, err := m.usedByOthers(dir, r); used || err != nil {
		return err
	}
	d, err := m.drivers.get(r.Driver)
	if err != nil {
		return err
	}
	path := m.layout.staging(r.Driver, r.Handle)
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := d.NodeUnstageVolume(call, &spec.NodeUnstageVolumeRequest{VolumeId: r.Handle, StagingTargetPath: path}); err != nil {
		return fmt.Errorf("NodeUnstageVolume of CSI driver %s: %w", r.Driver, err)
	}
	if err := m.checkUnmounted(path, r); err != nil {
		return err
	}
	return staged.remove(stage, path)
}

// checkUnmounted returns an error if a driver has left a path mounted.
func (m *Manager) checkUnmounted(path string, r record) error {
	mounted, err := m.o.Mounted(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case mounted:
		return fmt.Errorf("CSI driver %s has left %s mounted", r.Driver, path)
	}
	return nil
}
