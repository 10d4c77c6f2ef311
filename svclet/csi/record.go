package csi

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/checkpoint"
)

// recordFile is the name of the files with records: kubelet's.
const recordFile = "vol_data.json"

const privateDir fs.FileMode = 0o750

// record is what the node knows of a volume that a driver may have mounted: of a pod, or
// staged for all pods. The keys that kubelet has, too, are kubelet's.
type record struct {
	Driver string `json:"driverName"`
	Handle string `json:"volumeHandle"`
	// Volume is the name of the PersistentVolume or, inline, of the pod's volume.
	Volume string `json:"specVolID"`
	Block  bool   `json:"block,omitempty"`
	// Attached reports that a controller attaches the volume to the node.
	Attached bool `json:"attached,omitempty"`
	// Staged reports that the driver stages the volume before it publishes it.
	Staged bool `json:"staged,omitempty"`
	// Measurable reports that the driver measures the volume.
	Measurable bool `json:"measurable,omitempty"`
	// Begun reports that the driver may have begun: its call is to be undone.
	Begun bool `json:"begun,omitempty"`
	// Done is the boot of the machine in which the driver's call has succeeded, and the files
	// have the pod's fsGroup if they are to: mounts do not survive a reboot.
	Done string `json:"doneInBoot,omitempty"`
}

// key identifies the volume on this node.
func (r record) key() string { return r.Driver + "^" + r.Handle }

// readRecord reads the record in a directory. It returns fs.ErrNotExist if there is none.
func readRecord(dir string) (record, error) {
	content, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return record{}, fmt.Errorf("%s is damaged: unmount %s, and remove that directory: %w", filepath.Join(dir, recordFile), dir, err)
	}
	return r, nil
}

// write writes the record into a directory, which it creates, so that it survives a crash
// of the machine.
func (r record) write(dir string) error {
	if err := os.MkdirAll(dir, privateDir); err != nil {
		return err
	}
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, recordFile)
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return checkpoint.Sync(dir)
}

// remove removes the record and the paths in its directory that drivers leave behind. It
// removes no file of a volume: a directory that is not empty is an error.
func (r record) remove(dir string, paths ...string) error {
	var errs []error
	for _, path := range append(paths, filepath.Join(dir, recordFile+".new"), filepath.Join(dir, recordFile), dir) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			break // The record is kept while a path is in use.
		}
	}
	return errors.Join(errs...)
}

// layout returns the paths below the agent's root directory. The names passed to it have
// been checked.
type layout struct{ root string }

// PluginName is the part of the paths of CSI volumes that names their type.
const PluginName = "kubernetes.io~csi"

func (l layout) volumes(uid types.UID) string {
	return filepath.Join(l.root, "pods", string(uid), "volumes", PluginName)
}

// target returns where a volume is published for a pod.
func (l layout) target(uid types.UID, r record) string {
	if r.Block {
		return filepath.Join(l.root, "plugins/kubernetes.io/csi/volumeDevices/publish", r.Volume, string(uid))
	}
	return filepath.Join(l.volumes(uid), r.Volume, "mount")
}

// stage returns the directory of a staged volume.
func (l layout) stage(driver, handle string) string {
	return filepath.Join(l.root, "plugins/kubernetes.io/csi", driver, fmt.Sprintf("%x", sha256.Sum256([]byte(handle))))
}

// staging returns where a volume is staged.
func (l layout) staging(driver, handle string) string {
	return filepath.Join(l.stage(driver, handle), "globalmount")
}

// published returns the records of the volumes of all pods, by directory. Records that
// cannot be read are in the error.
func (l layout) published() (map[string]record, error) {
	dirs, err := l.volumeDirs()
	if err != nil {
		return nil, err
	}
	return readRecords(dirs)
}

// volumeDirs returns the directories of the volumes of all pods.
func (l layout) volumeDirs() ([]string, error) {
	return filepath.Glob(filepath.Join(l.root, "pods", "*", "volumes", PluginName, "*"))
}

// usedByOthers reports whether a volume has records besides the one in dir. A record that
// cannot be read is an error if it may be one of them.
func (m *Manager) usedByOthers(dir string, r record) (bool, error) {
	dirs, err := m.layout.volumeDirs()
	if err != nil {
		return false, err
	}
	var damaged error
	for _, other := range dirs {
		if other == dir {
			continue
		}
		o, err := readRecord(other)
		switch {
		case err == nil && o.Driver == r.Driver && o.Handle == r.Handle:
			return true, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			may, mountErr := m.mayUse(other, r)
			if mountErr != nil {
				err = errors.Join(err, mountErr)
			}
			if may || mountErr != nil {
				damaged = errors.Join(damaged, err)
			}
		}
	}
	return false, damaged
}

// noteInline remembers the directory of an inline volume of a pod.
func (m *Manager) noteInline(uid types.UID, dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inline[uid] == nil {
		m.inline[uid] = map[string]bool{}
	}
	m.inline[uid][dir] = true
}

// isInline reports whether the pod of a directory is known to have it for an inline volume.
func (m *Manager) isInline(dir string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inline[uidOf(dir)][dir]
}

// forgetInline forgets the inline volumes of a pod.
func (m *Manager) forgetInline(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.inline, uid)
}

// mayUse reports whether the volume of dir, whose record is damaged, may be on the device of
// r: it has the same name, or it is mounted and may be another PersistentVolume with the
// same handle. It is not that if it is an inline volume, or if a volume of its name is staged
// with another handle.
func (m *Manager) mayUse(dir string, r record) (bool, error) {
	if m.isInline(dir) {
		return false, nil
	}
	name := filepath.Base(dir)
	if name == r.Volume {
		return true, nil
	}
	uses := false
	for _, block := range []bool{false, true} {
		mounted, err := m.o.Mounted(m.layout.target(uidOf(dir), record{Volume: name, Block: block}))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		uses = uses || mounted
	}
	if !uses {
		return false, nil
	}
	stages, err := filepath.Glob(filepath.Join(m.layout.root, "plugins/kubernetes.io/csi", "*", "*"))
	if err != nil {
		return false, err
	}
	for _, stage := range stages {
		if staged, err := readRecord(stage); err == nil && staged.Volume == name && (staged.Driver != r.Driver || staged.Handle != r.Handle) {
			return false, nil
		}
	}
	return true, nil
}

// of returns the records of the volumes of a pod, by directory.
func (l layout) of(uid types.UID) (map[string]record, error) {
	entries, err := os.ReadDir(l.volumes(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, entry := range entries {
		dirs = append(dirs, filepath.Join(l.volumes(uid), entry.Name()))
	}
	return readRecords(dirs)
}

func readRecords(dirs []string) (map[string]record, error) {
	found := map[string]record{}
	var errs []error
	for _, dir := range dirs {
		r, err := readRecord(dir)
		switch {
		case err == nil:
			found[dir] = r
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return found, errors.Join(errs...)
}
