package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Objects are the API's objects that volumes are filled with.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Token is a token of the pod's service account, bound to the pod. It asks
	// for a new one when the old one nears its end.
	Token(ctx context.Context, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection) (string, error)
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// Options are what a manager is made with.
type Options struct {
	// RootDir is the agent's directory (--root-dir). It is made if it is not
	// there.
	RootDir string
	// Objects are required.
	Objects Objects
	// Allocatable is what the node has for pods: the bound of volumes in
	// memory, and what resource fields without a limit show. Nil means that it
	// is not known.
	Allocatable func() corev1.ResourceList
	// UsagePeriod is how long a measurement of a pod's volumes is good for
	// (--volume-stats-agg-period). Zero measures each time.
	UsagePeriod time.Duration
	// Images says that the runtime mounts images into containers (KEP-4639).
	// Volumes of type image are then left to it, and refused otherwise.
	Images bool
	// Mounter defaults to the kernel's.
	Mounter Mounter
	// Clock defaults to the real one.
	Clock clock.PassiveClock
}

// Manager mounts and unmounts the volumes of pods. Its methods may be called
// from any goroutine; those about one pod wait for each other.
type Manager struct {
	Options
	layout layout

	mutex sync.Mutex
	pods  map[types.UID]*state
}

// state is what is remembered of a pod. Its own mutex is held by whoever changes
// what is on disk; what is in it is guarded by the manager's.
type state struct {
	sync.Mutex
	users   int
	volumes []mountedVolume
	usage   []Usage
	usedAt  time.Time
}

// Mounted is a volume that is ready to be mounted into containers.
type Mounted struct {
	// HostPath is where it lies: a directory, or for a volume of type hostPath
	// whatever is there. It is empty for an image.
	HostPath string
	// Image is what the runtime is to mount.
	Image *corev1.ImageVolumeSource
	// ReadOnly says that containers may only read it, whatever their mounts say.
	ReadOnly bool
	// Relabel says that the runtime should give it the pod's SELinux label.
	Relabel bool
	// Group is one that the pod's processes need besides their own, from the
	// annotation pv.beta.kubernetes.io/gid of a PersistentVolume.
	Group *int64
}

// Error says why one volume could not be mounted. Its text is that of
// kubelet's FailedMount event.
type Error struct {
	Volume string
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", e.Volume, e.Err)
}

// Unwrap is what went wrong.
func (e *Error) Unwrap() error { return e.Err }

// New makes the agent's directory and returns a manager of what is in it.
func New(options Options) (*Manager, error) {
	if options.Objects == nil {
		return nil, errors.New("volumes need a source of objects")
	}
	if options.Mounter == nil {
		options.Mounter = kernel{}
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
	// The kernel's table of mounts knows only true paths.
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, fmt.Errorf("root directory %q: %w", options.RootDir, err)
	}
	options.RootDir = root
	return &Manager{Options: options, layout: layout{root: root}, pods: map[types.UID]*state{}}, nil
}

// Mount makes the pod's directories and volumes and returns the volumes by
// name. It waits, as long as the context lets it, for objects that it has not
// heard of yet, and can be repeated: what is there already stays as it is, but
// for the content that Refresh would bring up to date.
//
// Its error joins one [*Error] for each volume that failed; the others are
// mounted and returned nonetheless.
func (m *Manager) Mount(ctx context.Context, pod *corev1.Pod) (map[string]Mounted, error) {
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
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		mounted, err := m.mount(ctx, pod, volume)
		if err != nil {
			failed = append(failed, &Error{Volume: volume.Name, Err: err})
			continue
		}
		result[volume.Name] = mounted.Mounted
		volumes = append(volumes, mounted)
	}
	m.remember(state, volumes)
	return result, errors.Join(failed...)
}

// Refresh brings the content of the pod's volumes up to date with the objects
// that they show. A volume that cannot be is left as it was, and told of in the
// error as Mount does. A pod that is not mounted is left alone.
func (m *Manager) Refresh(ctx context.Context, pod *corev1.Pod) error {
	if err := m.layout.check(pod); err != nil {
		return err
	}
	state, done := m.hold(pod.UID)
	defer done()
	var failed []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if !showsObjects(volume) || !m.remembers(state, volume.Name) {
			continue
		}
		if _, err := m.mount(ctx, pod, volume); err != nil {
			failed = append(failed, &Error{Volume: volume.Name, Err: err})
		}
	}
	return errors.Join(failed...)
}

// mount mounts one volume, or brings it up to date.
func (m *Manager) mount(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (mountedVolume, error) {
	switch {
	case volume.EmptyDir != nil:
		return m.mountEmptyDir(pod, volume)
	case volume.HostPath != nil:
		return mountHostPath(volume.Name, volume.HostPath, false)
	case showsObjects(volume):
		return m.mountObjects(ctx, pod, volume)
	case volume.Image != nil && m.Images:
		return mountedVolume{name: volume.Name, Mounted: Mounted{Image: volume.Image, ReadOnly: true, Relabel: true}}, nil
	case volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil:
		return m.mountClaim(ctx, pod, volume)
	default:
		return mountedVolume{}, unsupported(&volume.VolumeSource)
	}
}

// mountedVolume is what is remembered of a volume.
type mountedVolume struct {
	Mounted
	name string
	// measure says how its usage is found out.
	measure measure
	claim   string
}

func (m *Manager) remember(s *state, volumes []mountedVolume) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	s.volumes, s.usage = volumes, nil
}

func (m *Manager) remembers(s *state, name string) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return slices.ContainsFunc(s.volumes, func(v mountedVolume) bool { return v.name == name })
}

// hold locks what is on disk of a pod until done is called.
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
		if held.users == 0 && len(held.volumes) == 0 {
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
