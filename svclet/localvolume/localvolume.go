// Package localvolume owns the directories of this node that are persistent volumes of
// the provisioner svc.dev/local-path: it removes that of a volume which is being
// deleted, once no pod uses it, and then the volume's finalizer. Package volume
// creates them.
package localvolume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"svc.dev/svc/apis/localpath"
	"svc.dev/svc/svclet/reflector"
)

// ErrInUse is the error about a volume that a pod of this node uses.
var ErrInUse = errors.New("in use by a pod")

// Options are the options of [New]. All are required.
type Options struct {
	// Dir has the directories of all volumes.
	Dir string
	// Node is the name of this node.
	Node string
	// Core watches the volumes of this node, and Client writes them.
	Core   rest.Interface
	Client client.Client
	// Remove removes the directory of a volume. Its error is ErrInUse if a pod uses it.
	Remove func(ctx context.Context, dir string) error
	Clock  clock.WithTicker
}

// Manager removes the directories of deleted volumes.
type Manager struct {
	Options
	// wake has a value when there may be something to do.
	wake chan struct{}
	// first is closed when there is a directory: a node without any volume watches none.
	first func()
	ready chan struct{}

	mu sync.Mutex
	// deleted are the volumes whose directories are to be removed, by name.
	deleted map[string]*corev1.PersistentVolume
}

// New returns a manager. It does nothing before [Manager.Run].
func New(o Options) *Manager {
	ready := make(chan struct{})
	return &Manager{
		Options: o, wake: make(chan struct{}, 1), ready: ready, first: sync.OnceFunc(func() { close(ready) }),
		deleted: map[string]*corev1.PersistentVolume{},
	}
}

// Created tells the manager that a directory was created.
func (m *Manager) Created() { m.first() }

// retryPeriod is the time until a removal that failed is repeated, for example because
// a pod still used the volume.
const retryPeriod = 5 * time.Second

// searchPeriod is how often a node without a directory lists its volumes.
const searchPeriod = 10 * time.Minute

// searchTimeout bounds a list.
const searchTimeout = 30 * time.Second

// Run removes directories until ctx is done.
func (m *Manager) Run(ctx context.Context) {
	entries, err := os.ReadDir(m.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).Error(err, "Failed to read the directory of local volumes", "dir", m.Dir)
	}
	if len(entries) > 0 {
		m.first()
	}
	if !m.awaitFirst(ctx) {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		selected := func(o *metav1.ListOptions) { o.LabelSelector = m.ownVolumes().String() }
		reflector.RunSelected(ctx, m.Core, "persistentvolumes", selected, &corev1.PersistentVolume{}, "local volumes of this node", (*store)(m))
	})
	for ctx.Err() == nil {
		var retry <-chan time.Time
		if !m.removeAll(ctx) {
			retry = m.Clock.After(retryPeriod)
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-retry:
		}
	}
}

// ownVolumes selects the volumes of this node.
func (m *Manager) ownVolumes() labels.Selector {
	return labels.SelectorFromSet(labels.Set{localpath.NodeLabel: m.Node})
}

// awaitFirst waits until this node may have a volume, and reports whether it may: there is a
// directory, or the API server has a volume, which no pod may have used before it was deleted.
// A node without any, which most nodes of a fleet are, lists rarely in place of a watch. An API
// server other than svc's refuses the list.
func (m *Manager) awaitFirst(ctx context.Context) bool {
	for {
		select {
		case <-m.ready:
			return true
		default:
		}
		found, err := m.search(ctx)
		if found {
			return true
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Failed to list the local volumes of this node, will retry", "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-m.ready:
			return true
		case <-m.Clock.After(searchPeriod):
		}
	}
}

// search reports whether the API server has a volume of this node.
func (m *Manager) search(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	var own corev1.PersistentVolumeList
	err := m.Client.List(ctx, &own, &client.ListOptions{LabelSelector: m.ownVolumes(), Limit: 1, Raw: &metav1.ListOptions{ResourceVersion: "0"}})
	return err == nil && len(own.Items) > 0, err
}

// removeAll removes the directories of deleted volumes, and reports whether none is
// left.
func (m *Manager) removeAll(ctx context.Context) bool {
	m.mu.Lock()
	var volumes []*corev1.PersistentVolume
	for _, pv := range m.deleted {
		volumes = append(volumes, pv)
	}
	m.mu.Unlock()
	done := true
	for _, pv := range volumes {
		if err := m.remove(ctx, pv); err != nil {
			done = false
			if errors.Is(err, ErrInUse) {
				klog.FromContext(ctx).Info("Local volume is still in use by a pod, will retry", "volume", pv.Name)
			} else if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to remove local volume, will retry", "volume", pv.Name)
			}
			continue
		}
		m.forget(pv)
	}
	return done
}

// remove removes the directory of a volume, unless it is to be retained, and then the
// finalizer.
func (m *Manager) remove(ctx context.Context, pv *corev1.PersistentVolume) error {
	dir := localpath.Directory(m.Dir, pv.Name)
	retain := pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
	switch {
	case retain:
	case pv.Spec.Local.Path != dir:
		return fmt.Errorf("the volume's path is %s, and this node has its volumes in %s: remove the directory and the finalizer %s", pv.Spec.Local.Path, m.Dir, localpath.Finalizer)
	default:
		if err := m.Remove(ctx, dir); err != nil {
			return err
		}
	}
	changed := pv.DeepCopy()
	controllerutil.RemoveFinalizer(changed, localpath.Finalizer)
	if err := m.Client.Patch(ctx, changed, client.MergeFromWithOptions(pv, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("finalizers of volume %s: %w", pv.Name, err)
	}
	klog.FromContext(ctx).Info("Removed local volume", "volume", pv.Name, "dir", dir, "retained", retain)
	return nil
}

// forget forgets a volume that is done, unless it has changed meanwhile.
func (m *Manager) forget(pv *corev1.PersistentVolume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deleted[pv.Name] == pv {
		delete(m.deleted, pv.Name)
	}
}

// see records the newest state of a volume.
func (m *Manager) see(pv *corev1.PersistentVolume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !localpath.Made(pv) || !localpath.Removable(pv) {
		delete(m.deleted, pv.Name)
		return
	}
	m.deleted[pv.Name] = pv
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// store is the manager as the store of a reflector.
type store Manager

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error { (*Manager)(s).see(obj.(*corev1.PersistentVolume)); return nil }

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	m := (*Manager)(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.deleted, obj.(*corev1.PersistentVolume).Name)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(objs []any, _ string) error {
	m := (*Manager)(s)
	m.mu.Lock()
	clear(m.deleted)
	m.mu.Unlock()
	for _, obj := range objs {
		m.see(obj.(*corev1.PersistentVolume))
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }
