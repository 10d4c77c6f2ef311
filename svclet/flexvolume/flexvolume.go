package flexvolume

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

const (
	// podsDir is the directory of pods below the agent's.
	podsDir = "pods"

	directoryMode fs.FileMode = 0o750
)

// Mounter is the part of the mount table that is used.
type Mounter interface {
	// Mounted reports whether a path is a mount point.
	Mounted(path string) (bool, error)
	Bind(source, target string) error
	// Unmount detaches the topmost mount on a path; it is not an error if there is none.
	Unmount(path string) error
}

// Options are what a manager works with; all are required.
type Options struct {
	// Dir is the directory of drivers (--volume-plugin-dir), RootDir the agent's, without
	// symlinks in its path.
	Dir, RootDir string
	NodeName     string
	Mounter      Mounter
	// MountCommand runs mount(8).
	MountCommand func(ctx context.Context, args ...string) error
	Secret       func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Volume is a volume that a pod wants.
type Volume struct {
	Pod *corev1.Pod
	// Name is that of the pod's volume, or of its PersistentVolume.
	Name string
	// Persistent reports whether it is a PersistentVolume's.
	Persistent bool
	Source     corev1.FlexPersistentVolumeSource
	ReadOnly   bool
	// MountOptions are those of the PersistentVolume.
	MountOptions []string
}

// Published is a volume that is ready.
type Published struct {
	// Path is its directory.
	Path string
	// New reports whether it was mounted by this call.
	New bool
	// Group makes the caller give the files to the pod's fsGroup.
	Group bool
	// Relabel reports whether the runtime may set the pod's SELinux label, Measurable
	// whether the volume is a file system of its own.
	Relabel, Measurable bool
}

// Manager publishes volumes. Its methods are safe for concurrent use; calls for one pod
// must not overlap.
type Manager struct {
	o Options

	mu      sync.Mutex // guards drivers
	drivers map[string]cached
	// devices is held while a device is attached or detached, so that one that a pod
	// leaves is not detached under another pod.
	devices sync.Mutex
}

// New returns a manager. Drivers are run when a pod wants a volume of theirs.
func New(o Options) *Manager { return &Manager{o: o, drivers: map[string]cached{}} }

// record is what Unpublish needs of a volume. It is written before the driver is called,
// and has no secrets.
type record struct {
	Driver string `json:"driver"`
	Path   string `json:"path"`
	// Device is the directory on which the device is mounted, VolumeName its name; both
	// are empty for drivers that do not attach.
	Device     string `json:"device,omitempty"`
	VolumeName string `json:"volumeName,omitempty"`
}

// Publish makes a volume available in the pod's directory. It is idempotent.
func (m *Manager) Publish(ctx context.Context, v Volume) (Published, error) {
	d, err := m.driver(ctx, v.Source.Driver)
	if err != nil {
		return Published{}, err
	}
	dir := m.volumeDir(v.Pod.UID, d.name, v.Name)
	published := Published{Path: dir, Group: d.FSGroup && !v.ReadOnly, Relabel: d.SELinuxRelabel && !v.ReadOnly, Measurable: d.SupportsMetrics}
	there, err := m.o.Mounter.Mounted(dir)
	if there || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return published, err
	}
	options, err := m.options(ctx, v)
	if err != nil {
		return published, err
	}
	r := record{Driver: d.name, Path: dir}
	if d.Attach {
		if r.VolumeName, err = volumeName(ctx, d, v, options); err != nil {
			return published, err
		}
		r.Device = m.deviceDir(d.name, r.VolumeName)
	}
	if err := m.save(v.Pod.UID, r); err != nil {
		return published, err
	}
	if d.Attach {
		if err := m.attach(ctx, d, v, r, options); err != nil {
			return published, err
		}
	}
	if err := os.MkdirAll(dir, directoryMode); err != nil {
		return published, err
	}
	_, err = d.call(ctx, "mount", dir, encode(options))
	if errors.Is(err, errNotSupported) {
		err = m.bind(ctx, r, v)
	}
	if err != nil {
		// Nothing is mounted, as a rule; a directory that is in use stays.
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			klog.FromContext(ctx).V(2).Info("Failed to remove the directory of a volume", "dir", dir, "err", err)
		}
		return published, err
	}
	published.New = true
	return published, nil
}

// bind mounts the device's directory on the pod's, for a driver without the command mount.
func (m *Manager) bind(ctx context.Context, r record, v Volume) error {
	if r.Device == "" {
		return fmt.Errorf("the FlexVolume driver %s supports neither mount nor attach", r.Driver)
	}
	if v.ReadOnly {
		return m.o.MountCommand(ctx, "-o", "bind,ro", "--", r.Device, r.Path)
	}
	return m.o.Mounter.Bind(r.Device, r.Path)
}

// options returns the options of a driver's calls for a volume.
func (m *Manager) options(ctx context.Context, v Volume) (map[string]string, error) {
	access := "rw"
	if v.ReadOnly {
		access = "ro"
	}
	options := map[string]string{
		"kubernetes.io/fsType": v.Source.FSType, "kubernetes.io/readwrite": access, "kubernetes.io/pvOrVolumeName": v.Name,
		"kubernetes.io/pod.name": v.Pod.Name, "kubernetes.io/pod.namespace": v.Pod.Namespace, "kubernetes.io/pod.uid": string(v.Pod.UID),
		"kubernetes.io/serviceAccount.name": v.Pod.Spec.ServiceAccountName,
	}
	if c := v.Pod.Spec.SecurityContext; c != nil && c.FSGroup != nil {
		options["kubernetes.io/mounterArgs.FsGroup"] = strconv.FormatInt(*c.FSGroup, 10)
	}
	for key, value := range v.Source.Options {
		options[key] = value
	}
	ref := v.Source.SecretRef
	if ref == nil || ref.Name == "" {
		return options, nil
	}
	namespace := ref.Namespace
	if namespace == "" {
		namespace = v.Pod.Namespace
	}
	secret, err := m.o.Secret(ctx, namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("couldn't get secret %s/%s: %w", namespace, ref.Name, err)
	}
	if v.Persistent && string(secret.Type) != v.Source.Driver {
		return nil, fmt.Errorf("cannot get secret of type %s: secret %s/%s is of type %s", v.Source.Driver, namespace, ref.Name, secret.Type)
	}
	for key, value := range secret.Data {
		options["kubernetes.io/secret/"+key] = base64.StdEncoding.EncodeToString(value)
	}
	return options, nil
}

// Unpublish releases the volumes of a pod, and the devices that no other pod uses. It is
// not an error if there are none.
func (m *Manager) Unpublish(ctx context.Context, uid types.UID) error {
	records, err := m.records(uid)
	if err != nil {
		return err
	}
	for file, r := range records {
		if err := m.unpublish(ctx, r); err != nil {
			return err
		}
		if err := m.release(ctx, file, r); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) unpublish(ctx context.Context, r record) error {
	if _, err := os.Lstat(r.Path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	d, err := m.driver(ctx, r.Driver)
	if err == nil {
		_, err = d.call(ctx, "unmount", r.Path)
	}
	// A driver that is gone can leave no more than the mount.
	if errors.Is(err, errNotSupported) || errors.Is(err, fs.ErrNotExist) {
		err = m.o.Mounter.Unmount(r.Path)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(r.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).V(2).Info("A FlexVolume driver left files in the directory of a volume", "driver", r.Driver, "dir", r.Path, "err", err)
	}
	return nil
}

// records returns the records of a pod, by their file.
func (m *Manager) records(uid types.UID) (map[string]record, error) {
	dir := m.recordDir(uid)
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	records := make(map[string]record, len(files))
	for _, entry := range files {
		file := filepath.Join(dir, entry.Name())
		if filepath.Ext(file) != ".json" {
			continue // a crash left it half-written
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var r record
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		// The pod's directory is all that a record may speak of.
		if !strings.HasPrefix(r.Path, m.podDir(uid)+string(filepath.Separator)) {
			return nil, fmt.Errorf("reading %s: the volume %s is not one of the pod", file, r.Path)
		}
		records[file] = r
	}
	return records, nil
}

func (m *Manager) podDir(uid types.UID) string {
	return filepath.Join(m.o.RootDir, podsDir, string(uid))
}

func (m *Manager) recordDir(uid types.UID) string {
	return filepath.Join(m.podDir(uid), "plugins", "kubernetes.io~flexvolume")
}

func (m *Manager) volumeDir(uid types.UID, driver, name string) string {
	return filepath.Join(m.podDir(uid), "volumes", escape(driver), name)
}

func (m *Manager) deviceDir(driver, volume string) string {
	return filepath.Join(m.o.RootDir, "plugins", "kubernetes.io", "flexvolume", driver, "mounts", escape(volume))
}

func encode(options map[string]string) string {
	text, err := json.Marshal(options)
	if err != nil { // strings can always be encoded
		panic(err)
	}
	return string(text)
}
