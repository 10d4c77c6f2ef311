package source

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// mirrors maintains a mirror pod in the API server for each static pod.
type mirrors struct {
	o     Options
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu sync.Mutex
	// api are the mirror pods of this node in the API server.
	api map[types.NamespacedName]*corev1.Pod
	// static are the desired static pods.
	static map[types.NamespacedName]*corev1.Pod
	// ending are the static pods that are no longer desired and have not terminated
	// yet.
	ending map[types.NamespacedName]map[types.UID]bool
	// known reports that the API server's pods have been listed, sure that all sources
	// have answered too.
	known, sure bool
}

func newMirrors(o Options) *mirrors {
	return &mirrors{
		o: o,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](200*time.Millisecond, 10*time.Second)),
		api:    map[types.NamespacedName]*corev1.Pod{},
		static: map[types.NamespacedName]*corev1.Pod{},
		ending: map[types.NamespacedName]map[types.UID]bool{},
	}
}

func keyOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// mirrorPatience is how many attempts fail before that is an error: at first the Node
// or the namespace may not exist yet. Five take 3 s.
const mirrorPatience = 4

// run syncs mirror pods until ctx is done.
func (m *mirrors) run(ctx context.Context) {
	if m.o.NodeUID == nil {
		<-ctx.Done()
		m.queue.ShutDown()
		return
	}
	stop := context.AfterFunc(ctx, m.queue.ShutDown)
	defer stop()
	for {
		key, done := m.queue.Get()
		if done {
			return
		}
		if err := m.sync(ctx, key); err == nil {
			m.queue.Forget(key)
		} else if ctx.Err() == nil {
			logger := klog.FromContext(ctx).WithValues("pod", key)
			if m.queue.NumRequeues(key) == mirrorPatience {
				logger.Error(err, "Failed to sync mirror pod, will retry")
			} else {
				logger.V(4).Info("Failed to sync mirror pod, will retry", "err", err)
			}
			m.queue.AddRateLimited(key)
		}
		m.queue.Done(key)
	}
}

// want updates which static pods are desired and which no longer.
func (m *mirrors) want(set, removed []*corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pod := range removed {
		key := keyOf(pod)
		if m.ending[key] == nil {
			m.ending[key] = map[types.UID]bool{}
		}
		m.ending[key][pod.UID] = true
		if known := m.static[key]; known != nil && known.UID == pod.UID {
			delete(m.static, key)
		}
		m.queue.Add(key)
	}
	for _, pod := range set {
		key := keyOf(pod)
		m.static[key] = pod
		// It may become desired again before it has terminated.
		delete(m.ending[key], pod.UID)
		m.queue.Add(key)
	}
}

// released records that nothing is left of a static pod.
func (m *mirrors) released(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := keyOf(pod)
	if delete(m.ending[key], pod.UID); len(m.ending[key]) == 0 {
		delete(m.ending, key)
	}
	m.queue.Add(key)
}

// observed records a mirror pod in the API server.
func (m *mirrors) observed(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.api[keyOf(pod)] = pod
	m.queue.Add(keyOf(pod))
}

// gone records that a mirror pod was removed from the API server.
func (m *mirrors) gone(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := keyOf(pod)
	if known := m.api[key]; known != nil && known.UID == pod.UID {
		delete(m.api, key)
	}
	m.queue.Add(key)
}

// listed records that all mirror pods of the API server are known.
func (m *mirrors) listed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = true
	m.enqueueAll()
}

// complete records that all static pods are known.
func (m *mirrors) complete() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sure = true
	m.enqueueAll()
}

// enqueueAll enqueues all static pods and mirror pods.
func (m *mirrors) enqueueAll() {
	for key := range m.static {
		m.queue.Add(key)
	}
	for key := range m.api {
		m.queue.Add(key)
	}
}

// of returns the mirror of a static pod.
func (m *mirrors) of(static *corev1.Pod) (*corev1.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mirror := m.api[keyOf(static)]
	if mirror == nil || !IsMirrorOf(mirror, static) {
		return nil, false
	}
	return mirror, true
}

// StaticUID returns the UID in the annotation of a mirror pod, empty without one. It is that of
// its static pod only if [IsMirrorOf] is true.
func StaticUID(mirror *corev1.Pod) types.UID {
	return types.UID(mirror.Annotations[MirrorAnnotation])
}

// sync syncs one mirror pod, with at most one request: the watch reports its
// effect and triggers the next sync.
func (m *mirrors) sync(ctx context.Context, key types.NamespacedName) error {
	m.mu.Lock()
	mirror, static := m.api[key], m.static[key]
	ready := m.known && (static != nil || m.sure) && len(m.ending[key]) == 0
	m.mu.Unlock()
	switch {
	case !ready:
		return nil
	case mirror != nil && (static == nil || mirror.DeletionTimestamp != nil || !IsMirrorOf(mirror, static)):
		return m.delete(ctx, mirror)
	case mirror == nil && static != nil:
		return m.create(ctx, static)
	}
	return nil
}

func (m *mirrors) delete(ctx context.Context, mirror *corev1.Pod) error {
	klog.FromContext(ctx).V(2).Info("Deleting mirror pod", "pod", klog.KObj(mirror), "podUID", mirror.UID)
	err := m.o.Core.Delete().Namespace(mirror.Namespace).Resource("pods").Name(mirror.Name).
		Body(&metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(mirror.UID))}).
		Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		// It is gone already, and the watch will report that.
		return nil
	}
	return err
}

func (m *mirrors) create(ctx context.Context, static *corev1.Pod) error {
	owner, err := m.o.NodeUID(ctx)
	if err != nil {
		return err
	}
	mirror := mirrorOf(static, metav1.OwnerReference{
		APIVersion: m.o.Core.APIVersion().String(), Kind: "Node", Name: m.o.NodeName, UID: owner, Controller: ptr.To(true),
	})
	err = m.o.Core.Post().Namespace(mirror.Namespace).Resource("pods").Body(mirror).Do(ctx).Error()
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	// Either the mirror is correct and the watch has not reported it yet, or the pod
	// is no mirror and the name conflict must be resolved by the user.
	existing := &corev1.Pod{}
	if getErr := m.o.Core.Get().Namespace(mirror.Namespace).Resource("pods").Name(mirror.Name).Do(ctx).Into(existing); getErr != nil {
		return getErr
	}
	if IsMirror(existing) && existing.Spec.NodeName == m.o.NodeName {
		return nil
	}
	return err
}

// mirrorOf returns the mirror pod of a static pod.
func mirrorOf(static *corev1.Pod, node metav1.OwnerReference) *corev1.Pod {
	mirror := &corev1.Pod{
		ObjectMeta: *static.ObjectMeta.DeepCopy(),
		Spec:       static.Spec,
		Status:     static.Status,
	}
	mirror.UID = ""
	mirror.Annotations = maps.Clone(static.Annotations)
	mirror.Annotations[MirrorAnnotation] = static.Annotations[HashAnnotation]
	// A node may only create pods that it owns: KEP-1314.
	mirror.OwnerReferences = []metav1.OwnerReference{node}
	return mirror
}
