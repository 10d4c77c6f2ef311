package csi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/plugins"
	"svc.dev/svc/svclet/volumeexpansion"
)

// Options are what a [Manager] works with. Fields are required unless their comment says
// otherwise.
type Options struct {
	// RootDir is the agent's directory (--root-dir), which exists.
	RootDir  string
	NodeName string
	// Client reads CSIDrivers, VolumeAttachments and Secrets, creates tokens, and writes
	// the CSINode. It is nil without an API server.
	Client client.Client
	// Mounted reports whether a path is a mount point. A path that does not exist is an
	// error. It does not enter the mount, whose file system may not respond.
	Mounted func(path string) (bool, error)
	// ControllerAttaches reports whether a controller attaches volumes to this node
	// (--enable-controller-attach-detach).
	ControllerAttaches bool
	// Node returns the Node as the API server has it. Volumes that a controller attaches
	// are used only when its status has them.
	Node func() *corev1.Node
	// InUseChanged is called after a change of [Manager.InUse].
	InUseChanged func()
	Clock        clock.WithDelayedExecution
	// Expansion decides when volumes are expanded.
	Expansion *volumeexpansion.Manager
	// Health asks drivers for the health of volumes, if they know it.
	Health bool
	// SELinux reports whether the host has SELinux.
	SELinux bool
}

// Manager mounts and releases volumes of CSI drivers. Its methods are safe for concurrent
// use.
type Manager struct {
	o       Options
	layout  layout
	boot    string
	drivers drivers
	// volumes serializes the calls for each volume of a driver.
	volumes keyed
	tokens  tokens

	csiNode sync.Mutex // held while the CSINode is written

	mu sync.Mutex
	// inUse counts the pods that use an attached volume, or will.
	inUse map[corev1.UniqueVolumeName]map[types.UID]bool
	// inline are the directories of inline volumes, by pod: those are never staged.
	inline map[types.UID]map[string]bool
}

// New returns a manager. It reads which volumes earlier agents have mounted.
func New(o Options) (*Manager, error) {
	root, err := filepath.Abs(o.RootDir)
	if err != nil {
		return nil, err
	}
	// Drivers and the kernel's mount table have the path without symlinks.
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, err
	}
	m := &Manager{
		o: o, layout: layout{root: root}, drivers: drivers{all: map[string]*driver{}},
		inUse: map[corev1.UniqueVolumeName]map[types.UID]bool{}, inline: map[types.UID]map[string]bool{},
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("the ID of the machine's boot: %w", err)
	}
	m.boot = strings.TrimSpace(string(boot))
	published, err := m.layout.published()
	if err != nil {
		klog.Background().Error(err, "Failed to restore the counts of attached CSI volumes")
	}
	for dir, r := range published {
		if r.Attached {
			m.count(uniqueName(r), uidOf(dir), true)
		}
	}
	return m, nil
}

// uniqueName returns the name of a volume in the Node's status.
func uniqueName(r record) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + r.Driver + "^" + r.Handle)
}

// uidOf returns the pod of a record's directory.
func uidOf(dir string) types.UID {
	parts := strings.Split(dir, string(os.PathSeparator))
	return types.UID(parts[max(len(parts)-4, 0)])
}

// Dir returns the directory of the sockets by which plugins register.
func (m *Manager) Dir() string { return filepath.Join(m.layout.root, "plugins_registry") }

// retryPeriod is the pause after the CSINode could not be created.
const retryPeriod = time.Second

// Run creates the CSINode. It retries until it has succeeded, or ctx is done.
func (m *Manager) Run(ctx context.Context) {
	if m.o.Client == nil {
		return
	}
	lastNote := ""
	for {
		err := m.createCSINode(ctx)
		if err == nil {
			return
		}
		// The Node may not be registered yet. A repeated error is logged once.
		if !apierrors.IsNotFound(err) && ctx.Err() == nil && err.Error() != lastNote {
			klog.FromContext(ctx).Error(err, "Failed to create the CSINode, will retry", "node", m.o.NodeName)
			lastNote = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-m.o.Clock.After(retryPeriod):
		}
	}
}

func (m *Manager) createCSINode(ctx context.Context) error {
	node, err := m.updateNode(ctx, func(*corev1.Node) error { return nil })
	if err != nil {
		return err
	}
	return m.updateCSINode(ctx, node, func(all []storagev1.CSINodeDriver) []storagev1.CSINodeDriver { return all })
}

// Register implements plugins.Handler.
func (m *Manager) Register(ctx context.Context, p plugins.Plugin) error {
	d, err := connect(ctx, p)
	if err != nil {
		return err
	}
	if m.o.Client != nil {
		if err := m.publishNode(ctx, d.name, d.node); err != nil {
			d.connection.Close()
			return err
		}
	}
	m.drivers.set(d)
	return nil
}

// Deregister implements plugins.Handler.
func (m *Manager) Deregister(ctx context.Context, p plugins.Plugin) {
	m.drivers.remove(p.Name)
	if m.o.Client == nil {
		return
	}
	if err := m.withdrawNode(ctx, p.Name); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to remove a CSI driver from the CSINode", "driver", p.Name)
	}
}

// InUse returns the volumes that a controller must not detach, for the Node's status.
func (m *Manager) InUse() []corev1.UniqueVolumeName {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []corev1.UniqueVolumeName
	for name := range m.inUse {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// use records whether a pod uses an attached volume.
func (m *Manager) use(name corev1.UniqueVolumeName, uid types.UID, used bool) {
	if m.count(name, uid, used) {
		m.o.InUseChanged()
	}
}

// count records whether a pod uses a volume, and reports whether InUse has changed.
func (m *Manager) count(name corev1.UniqueVolumeName, uid types.UID, used bool) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.inUse)
	switch pods := m.inUse[name]; {
	case used && pods == nil:
		m.inUse[name] = map[types.UID]bool{uid: true}
	case used:
		pods[uid] = true
	default:
		if delete(pods, uid); len(pods) == 0 {
			delete(m.inUse, name)
		}
	}
	return len(m.inUse) != before
}

// csiDriver returns a CSIDriver, or an empty one, whose fields have their defaults, if
// there is none.
func (m *Manager) csiDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	found := &storagev1.CSIDriver{}
	if err := m.o.Client.Get(ctx, client.ObjectKey{Name: name}, found); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading CSIDriver %s: %w", name, err)
	}
	return found, nil
}

// keyed is a mutex for each key.
type keyed struct {
	mu   sync.Mutex
	held map[string]*held
}

type held struct {
	sync.Mutex
	users int
}

// lock locks a key until unlock is called.
func (k *keyed) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*held{}
	}
	h := k.held[key]
	if h == nil {
		h = &held{}
		k.held[key] = h
	}
	h.users++
	k.mu.Unlock()
	h.Lock()
	return func() {
		h.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(k.held, key)
		}
	}
}
