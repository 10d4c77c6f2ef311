package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/keymutex"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/csi"
	"svc.dev/svc/svclet/flexvolume"
	"svc.dev/svc/svclet/volumeexpansion"
)

// Objects are the API objects that volumes get their content from.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Token returns a token of the pod's service account that is bound to the pod. It
	// requests a new one before the old one expires.
	Token(ctx context.Context, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection) (string, error)
	// TrustBundles returns the ClusterTrustBundles that a source selects, sorted by name. If
	// there are none, that is not an error.
	TrustBundles(ctx context.Context, source *corev1.ClusterTrustBundleProjection) ([]*certificatesv1.ClusterTrustBundle, error)
	// PodCertificate returns the private key and the certificate chain, in PEM, of a source
	// of a projected volume, by its index. It requests another one before it expires.
	PodCertificate(ctx context.Context, pod *corev1.Pod, volume string, index int, source *corev1.PodCertificateProjection) (key, chain []byte, err error)
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// CSI publishes the volumes of CSI drivers.
type CSI interface {
	Publish(ctx context.Context, v csi.Volume) (csi.Published, error)
	// Unpublish releases the volumes of a pod.
	Unpublish(ctx context.Context, uid types.UID) error
	Usage(ctx context.Context, uid types.UID, volume string) (csi.Usage, error)
}

// Flex publishes the volumes of FlexVolume drivers.
type Flex interface {
	Publish(ctx context.Context, v flexvolume.Volume) (flexvolume.Published, error)
	// Unpublish releases the volumes of a pod.
	Unpublish(ctx context.Context, uid types.UID) error
}

// Quotas measure directories by project quotas: [projectquota.Quotas].
type Quotas interface {
	// Assign gives an empty directory a quota.
	Assign(dir string) error
	// Usage returns what a directory uses; ok is false if it has no quota.
	Usage(dir string) (bytes, inodes uint64, ok bool, err error)
}

// Options are the options of [New].
type Options struct {
	// RootDir is the agent's directory (--root-dir). New creates it.
	RootDir string
	// Objects is required.
	Objects Objects
	// LocalDir has the directories of volumes of the provisioner svc.dev/local-path;
	// without it, there are none. LocalCreated is called when one was created.
	LocalDir     string
	LocalCreated func()
	// Allocatable returns the node's allocatable resources: the bound of memory-backed
	// volumes, and the value of resource fields without a limit. Nil means that they
	// are not known.
	Allocatable func() corev1.ResourceList
	// NodeLabels returns the labels of the Node, for the node affinity of PersistentVolumes.
	// Nil means none.
	NodeLabels func() map[string]string
	// UsagePeriod is how long a measurement of a pod's volumes is used
	// (--volume-stats-agg-period). Zero measures on every call.
	UsagePeriod time.Duration
	// Images returns why the container runtime does not mount images into containers
	// (KEP-4639), nil if it does. Without it volumes of type image are refused.
	Images func(ctx context.Context) error
	// Quotas measure volumes of type emptyDir on disk. Without them, and on file systems that
	// have none, the files of volumes are counted.
	Quotas Quotas
	// CSI publishes the volumes of CSI drivers. Without it they are refused.
	CSI CSI
	// Abnormal is called after each measurement of a volume whose CSI driver says that it is
	// not healthy. It may be nil.
	Abnormal func(uid types.UID, volume, message string)
	// MigratePortworx mounts volumes of type portworxVolume by their CSI driver.
	MigratePortworx bool
	// NodeName is the node's name, for FlexVolume drivers and volumes in LocalDir.
	NodeName string
	// PluginDir is the directory of FlexVolume drivers (--volume-plugin-dir). Without it they
	// are refused.
	PluginDir string
	// Mounter defaults to the kernel's.
	Mounter Mounter
	// MountCommand runs mount(8), which is the default, for file systems that need a
	// helper, and for the options of directories.
	MountCommand func(ctx context.Context, args ...string) error
	// FormatAndMount mounts the block device of a volume of type local on a directory, and
	// formats it first if it has no file system. It defaults to the functions of kubelet.
	FormatAndMount func(device, dir, fstype string, options []string) error
	// Measured is called after each operation on a volume: "volume_mount", also when its content
	// is refreshed, and "volume_unmount". plugin and migrated are labels of
	// storage_operation_duration_seconds. It may be nil.
	Measured func(plugin, operation string, migrated bool, took time.Duration, err error)
	// Expansion decides when volumes of type local are expanded. Without it they are not.
	Expansion *volumeexpansion.Manager
	// ResizeFilesystem makes the file system of a device, which is mounted on a directory, as large
	// as the device. It defaults to the function of kubelet.
	ResizeFilesystem func(device, dir string) error
	// Clock defaults to the system clock.
	Clock clock.Clock
}

// Manager mounts and unmounts the volumes of pods. Its methods are safe for
// concurrent use; calls for one pod are serialized.
type Manager struct {
	Options
	layout layout
	flex   Flex
	// devices are the locks of volumes of type local, by their names.
	devices keymutex.KeyMutex
	// measureFiles measures a volume by its file system: measureVolume, unless a test replaces it.
	measureFiles func(context.Context, mountedVolume) (Usage, error)

	mutex sync.Mutex
	pods  map[types.UID]*state
}

// state is the state of a pod. Its own mutex is held while the pod's files on disk
// change; its fields are guarded by the manager's mutex.
type state struct {
	sync.Mutex
	users   int
	volumes []mountedVolume
	// missing are the volumes of ephemeral containers that could not be mounted when the pod was
	// set up: Refresh mounts them.
	missing sets.Set[string]
	// wanted are the plugins of the volumes that the pod is to have, by their names; leaving are
	// those of the volumes that are to be unmounted.
	wanted  map[string]plugin
	leaving []plugin
	// measured are the measurements of the volumes, by their names.
	measured map[string]*measurement
}

// Mounted is a volume that is ready to be mounted into containers.
type Mounted struct {
	// HostPath is the volume's path on the host: a directory, or for a hostPath volume
	// any kind of file. It is empty for an image and for a block device.
	HostPath string
	// Device is the path of a block device, of a volume with volumeMode Block.
	Device string
	// Image is the image that the runtime is to mount.
	Image *corev1.ImageVolumeSource
	// ReadOnly makes all container mounts of the volume read-only.
	ReadOnly bool
	// Relabel reports whether the runtime should set the pod's SELinux label on the
	// volume.
	Relabel bool
	// Group is a supplemental group that the pod's processes need, from the annotation
	// pv.beta.kubernetes.io/gid of a PersistentVolume.
	Group *int64
}

// Error is the failure to mount one volume. Its text is that of kubelet's
// FailedMount event.
type Error struct {
	Volume string
	Err    error
}

// Error returns the text of the event.
func (e *Error) Error() string {
	operation, failed := "MountVolume.SetUp", (*checkError)(nil)
	if errors.As(e.Err, &failed) {
		operation = failed.check + " check"
	}
	return fmt.Sprintf("%s failed for volume %q : %v", operation, e.Volume, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// checkError is why a volume must not be mounted. check is the name of kubelet's check.
type checkError struct {
	check string
	error
}

// New creates the agent's directory and returns a manager of its content.
func New(options Options) (*Manager, error) {
	if options.Objects == nil {
		return nil, errors.New("volumes need a source of objects")
	}
	if options.Mounter == nil {
		options.Mounter = kernel{}
	}
	if options.MountCommand == nil {
		options.MountCommand = runMount
	}
	if options.FormatAndMount == nil {
		options.FormatAndMount = formatAndMount
	}
	if options.ResizeFilesystem == nil {
		options.ResizeFilesystem = resizeFilesystem
	}
	if options.Measured == nil {
		options.Measured = func(string, string, bool, time.Duration, error) {}
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	root, err := filepath.Abs(options.RootDir)
	if err != nil {
		return nil, fmt.Errorf("root directory %q: %w", options.RootDir, err)
	}
	if err := os.MkdirAll(filepath.Join(root, podsDir), privateDir); err != nil {
		return nil, fmt.Errorf("making the directory of pods: %w", err)
	}
	// The kernel's mount table has only paths without symlinks.
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, fmt.Errorf("root directory %q: %w", options.RootDir, err)
	}
	options.RootDir = root
	m := &Manager{Options: options, layout: layout{root: root}, devices: keymutex.NewHashed(64), measureFiles: measureVolume, pods: map[types.UID]*state{}}
	if options.PluginDir != "" {
		m.flex = flexvolume.New(flexvolume.Options{
			Dir: options.PluginDir, RootDir: root, NodeName: options.NodeName,
			Mounter: options.Mounter, MountCommand: options.MountCommand, Secret: options.Objects.Secret,
		})
	}
	return m, nil
}

// Mount creates the pod's directories and the volumes that its containers use, and returns these
// by name. It waits, until ctx is done, for objects that have not been received yet.
// It is idempotent: existing volumes are kept, and their content is refreshed as
// by Refresh.
//
// The error joins an [*Error] for each volume that failed; the others are mounted
// and returned nonetheless. The failure of a volume that only ephemeral containers use is
// not in the error: [Manager.MountMore] mounts it when such a container starts, and
// [Manager.Refresh] for one that runs already.
func (m *Manager) Mount(ctx context.Context, pod *corev1.Pod) (map[string]Mounted, error) {
	required := uses(podspec.NonEphemeral(&pod.Spec)).all()
	used := required.Union(usedByEphemeral(pod))
	return m.mountAll(ctx, pod, func(name string, mounted bool) (wanted, needed bool) {
		// A newer version of the pod may have an ephemeral container that uses a mounted volume.
		return mounted || used.Has(name), required.Has(name)
	})
}

// MountMore mounts the volumes with these names, as Mount does: those of an ephemeral container,
// which may be added after the pod was mounted.
func (m *Manager) MountMore(ctx context.Context, pod *corev1.Pod, names sets.Set[string]) (map[string]Mounted, error) {
	return m.mountAll(ctx, pod, func(name string, _ bool) (wanted, needed bool) { return names.Has(name), true })
}

// mountAll mounts the volumes that are wanted, and returns the errors of those that are needed.
// What was mounted before stays so: also if it is not wanted, or fails now.
func (m *Manager) mountAll(ctx context.Context, pod *corev1.Pod, choose func(name string, mounted bool) (wanted, needed bool)) (map[string]Mounted, error) {
	if err := m.layout.check(pod); err != nil {
		return nil, err
	}
	state, done := m.hold(pod.UID)
	defer done()
	if err := m.layout.makePodDirs(pod.UID); err != nil {
		return nil, err
	}
	result := make(map[string]Mounted, len(pod.Spec.Volumes))
	var volumes []mountedVolume
	var failed []error
	missing := state.missing.Clone()
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		before := m.remembered(state, volume.Name)
		wanted, needed := choose(volume.Name, before != nil)
		if wanted {
			mounted, err := m.mount(ctx, state, pod, volume)
			if err == nil {
				result[volume.Name] = mounted.Mounted
				volumes = append(volumes, mounted)
				missing.Delete(volume.Name)
				continue
			}
			if needed {
				failed = append(failed, &Error{Volume: volume.Name, Err: err})
			} else {
				missing.Insert(volume.Name)
				klog.FromContext(ctx).Info("Failed to mount a volume of ephemeral containers", "pod", klog.KObj(pod), "volume", volume.Name, "err", err)
			}
		}
		if before != nil {
			volumes = append(volumes, *before)
		}
	}
	m.remember(state, volumes, missing)
	return result, errors.Join(failed...)
}

// usedByEphemeral returns the names of the volumes of the pod's ephemeral containers, but for those
// that have ended: they do not start again.
func usedByEphemeral(pod *corev1.Pod) sets.Set[string] {
	ended := sets.Set[string]{}
	for i := range pod.Status.EphemeralContainerStatuses {
		if s := &pod.Status.EphemeralContainerStatuses[i]; s.State.Terminated != nil {
			ended.Insert(s.Name)
		}
	}
	return uses(func(yield func(podspec.Position, *corev1.Container) bool) {
		for position, c := range podspec.All(&pod.Spec) {
			if position.List == podspec.EphemeralContainers && !ended.Has(c.Name) && !yield(position, c) {
				return
			}
		}
	}).all()
}

// usedVolumes are the names of the volumes that containers mount, and of those that they have as
// devices.
type usedVolumes struct{ mounts, devices sets.Set[string] }

func (u usedVolumes) all() sets.Set[string] { return u.mounts.Union(u.devices) }

func uses(containers iter.Seq2[podspec.Position, *corev1.Container]) usedVolumes {
	used := usedVolumes{sets.Set[string]{}, sets.Set[string]{}}
	for _, c := range containers {
		for _, m := range c.VolumeMounts {
			used.mounts.Insert(m.Name)
		}
		for _, d := range c.VolumeDevices {
			used.devices.Insert(d.Name)
		}
	}
	return used
}

// Present reports whether the pod's directory exists, which [Manager.Mount] makes.
func (m *Manager) Present(uid types.UID) bool {
	_, err := os.Stat(m.layout.pod(uid))
	return !errors.Is(err, fs.ErrNotExist)
}

// mount mounts one volume, or refreshes it.
func (m *Manager) mount(ctx context.Context, s *state, pod *corev1.Pod, volume *corev1.Volume) (mountedVolume, error) {
	if volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil {
		return m.mountClaim(ctx, s, pod, volume)
	}
	return m.operate(s, volume.Name, m.inlinePlugin(&volume.VolumeSource), func() (mountedVolume, error) { return m.mountInline(ctx, pod, volume) })
}

// mountInline mounts a volume that is in the pod's spec.
func (m *Manager) mountInline(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (mountedVolume, error) {
	switch {
	case volume.EmptyDir != nil:
		return m.mountEmptyDir(ctx, pod, volume)
	case volume.HostPath != nil:
		return mountHostPath(volume.Name, volume.HostPath, false)
	case showsObjects(volume):
		return m.mountObjects(ctx, pod, volume)
	case volume.CSI != nil && m.CSI != nil:
		return m.mountCSI(ctx, csi.Volume{Pod: pod, Name: volume.Name, Inline: volume.CSI, ReadOnly: ptr.Deref(volume.CSI.ReadOnly, false)})
	case volume.PortworxVolume != nil && m.migratesPortworx():
		return m.mountInlinePortworx(ctx, pod, volume)
	case volume.FlexVolume != nil && m.flex != nil:
		return m.mountInlineFlex(ctx, pod, volume)
	case volume.NFS != nil:
		return m.mountNFS(ctx, pod, volume.Name, volume.Name, volume.NFS, nil, false)
	case volume.Image != nil && m.Images != nil:
		if err := m.Images(ctx); err != nil {
			return mountedVolume{}, err
		}
		return mountedVolume{name: volume.Name, Mounted: Mounted{Image: volume.Image, ReadOnly: true, Relabel: true}}, nil
	default:
		return mountedVolume{}, unsupported(&volume.VolumeSource)
	}
}

// mountedVolume is the state of a mounted volume.
type mountedVolume struct {
	Mounted
	name string
	// measure is how its usage is measured.
	measure measure
	plugin  plugin
	claim   string
	// driver is the name by which a CSI driver knows it, empty for other volumes.
	driver string
	// grows is the key by which svclet expands it, empty if it does not.
	grows string
}

func (m *Manager) remember(s *state, volumes []mountedVolume, missing sets.Set[string]) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	s.volumes, s.missing = volumes, missing
	// A measurement in flight is kept, so that one that never ends has no second one.
	maps.DeleteFunc(s.measured, func(_ string, u *measurement) bool {
		u.outdated = true
		return u.done == nil
	})
}

// remembered returns a mounted volume, nil if it is not mounted.
func (m *Manager) remembered(s *state, name string) *mountedVolume {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	i := slices.IndexFunc(s.volumes, func(v mountedVolume) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	return &s.volumes[i]
}

// hold locks the files of a pod on disk until done is called.
func (m *Manager) hold(uid types.UID) (held *state, done func()) {
	m.mutex.Lock()
	held = m.pods[uid]
	if held == nil {
		held = &state{}
		m.pods[uid] = held
	}
	held.users++
	m.mutex.Unlock()
	held.Lock()
	return held, func() {
		held.Unlock()
		m.mutex.Lock()
		defer m.mutex.Unlock()
		held.users--
		if held.users == 0 && len(held.volumes)+len(held.wanted)+len(held.leaving) == 0 {
			delete(m.pods, uid)
		}
	}
}

func (m *Manager) allocatable() corev1.ResourceList {
	if m.Allocatable == nil {
		return nil
	}
	return m.Allocatable()
}
