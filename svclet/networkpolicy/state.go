package networkpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"svc.dev/svc/svclet/networkpolicy/ruleset"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/source"
)

// state is what the API server has of policies and their peers, with the pods that this
// node has started, as a model of the rules.
type state struct {
	node string
	// changed has a value when there may be changes to write.
	changed chan struct{}
	// needed is closed when there is a policy, which needs pods and namespaces.
	needed chan struct{}

	mu    sync.Mutex
	model *ruleset.Model
	// local are the pods of this node.
	local map[types.UID]localPod
	// listed are the kinds of which all objects are known.
	listed map[kind]bool
	// version counts changes; written is the version that the tables have, and failure
	// why they do not have a newer one. progress is closed, and replaced, when one of
	// these or listed changes.
	version, written int
	failure          error
	progress         chan struct{}
}

// localPod is a pod of this node.
type localPod struct {
	// watched is the pod as the API server has it; nil if it does not have it. held is the
	// pod as the agent has started it, as the runtime has it, or as the API server had it
	// last; nil if it does not run here.
	watched, held *ruleset.Pod
	// addresses are those that the runtime has. The API server learns them later, and
	// after a start of the machine it has those of before.
	addresses []netip.Addr
	// unseen is true if the runtime has the pod, but not said its addresses.
	unseen bool
	name   types.NamespacedName
	// static is true for a static pod, and for one of which only the runtime is known, which
	// may be static.
	static bool
	// mirrors is the UID in the annotation of a mirror pod whose static pod is not known here.
	mirrors types.UID
}

// pod returns the pod with the newest labels and addresses.
func (l localPod) pod() *ruleset.Pod {
	pod := l.held
	if l.watched != nil {
		pod = l.watched
	}
	if pod == nil || l.unseen {
		return pod
	}
	current := *pod
	current.Addresses = l.addresses
	return &current
}

func newState(node, bridge string) *state {
	return &state{
		node: node, changed: make(chan struct{}, 1), needed: make(chan struct{}), model: ruleset.NewModel(bridge),
		local: map[types.UID]localPod{}, listed: map[kind]bool{}, progress: make(chan struct{}),
	}
}

func (s *state) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// take calls do with the model, unless not all objects are known that it needs. version
// is that of the model.
func (s *state) take(do func(*ruleset.Model)) (version int, synced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced() {
		return 0, false
	}
	do(s.model)
	return s.version, true
}

// synced reports whether all objects are known: of pods and namespaces only if there is,
// or was, a policy.
func (s *state) synced() bool {
	if !s.listed[policyKind] {
		return false
	}
	select {
	case <-s.needed:
		return s.listed[podKind] && s.listed[namespaceKind]
	default:
		return true
	}
}

// wrote records that the tables have a version of the model, or why not.
func (s *state) wrote(version int, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure = failure; failure == nil {
		s.written = version
	}
	s.proceed()
}

func (s *state) proceed() {
	close(s.progress)
	s.progress = make(chan struct{})
}

// hold adds a pod that runs here, and returns a version of the model that has it, and whether
// all objects are known, with which it will be written.
func (s *state) hold(p *corev1.Pod, addresses []string) (version int, synced bool) {
	pod, _ := ruleset.PodOf(p, s.node)
	pod.Namespace, pod.Labels, pod.Local = p.Namespace, p.Labels, true
	s.mu.Lock()
	defer s.signal()
	defer s.mu.Unlock()
	l := s.local[p.UID]
	l.held, l.addresses, l.unseen = &pod, parse(addresses), false
	l.name, l.static = nameOf(p), source.IsStatic(p)
	if l.static {
		s.takeMirror(p.UID, &l)
	}
	s.setLocal(p.UID, l)
	s.version++
	return s.version, s.synced()
}

// takeMirror gives a static pod its mirror pod, if that has been known before.
func (s *state) takeMirror(uid types.UID, static *localPod) {
	for own, l := range s.local {
		if l.mirrors == uid && l.name == static.name {
			static.watched = l.watched
			s.setLocal(own, localPod{})
		}
	}
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// adopt adds the pods of the runtime, before anything is known of the API server's, which
// may not have them any more.
func (s *state) adopt(pods []runtime.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range pods {
		l := localPod{
			unseen: p.Err != nil, held: &ruleset.Pod{Namespace: p.Namespace, Labels: p.Labels, Local: true},
			name: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, static: true,
		}
		for _, sandbox := range p.Observed.Sandboxes {
			if sandbox.Ready {
				l.addresses = append(l.addresses, parse(sandbox.IPs)...)
			}
		}
		s.setLocal(p.UID, l)
	}
}

func parse(addresses []string) []netip.Addr {
	var all []netip.Addr
	for _, text := range addresses {
		if address, err := netip.ParseAddr(text); err == nil {
			all = append(all, address)
		}
	}
	return all
}

// release removes a pod that does not run here any more.
func (s *state) release(uid types.UID) {
	s.mu.Lock()
	defer s.signal()
	defer s.mu.Unlock()
	l := s.local[uid]
	l.held, l.addresses, l.unseen = nil, nil, false
	s.setLocal(uid, l)
	s.version++
}

// setLocal updates a pod of this node in the model.
func (s *state) setLocal(uid types.UID, l localPod) {
	if pod := l.pod(); pod != nil {
		s.model.SetPod(uid, *pod)
	} else {
		s.model.RemovePod(uid)
	}
	if l.watched == nil && l.held == nil {
		delete(s.local, uid)
	} else {
		s.local[uid] = l
	}
}

// protected reports whether the tables have what a pod of a version needs. Otherwise err
// says why not, and wake is closed when that may have changed.
func (s *state) protected(p *corev1.Pod, version int) (done bool, wake <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.local[p.UID]
	switch {
	case !s.listed[policyKind]:
		// The node's own pods do not depend on the API server.
		return source.IsStatic(p), s.progress, errors.New("the network policies have not been read from the API server yet")
	case known.held == nil: // the pod has been released meanwhile
		return true, nil, nil
	case !s.model.Filtered(*known.held) && (known.watched == nil || !s.model.Filtered(*known.watched)), s.written >= version:
		return true, nil, nil
	case s.failure != nil:
		return false, s.progress, s.failure
	case !s.synced():
		return source.IsStatic(p), s.progress, errors.New("pods and namespaces have not been read from the API server yet")
	}
	return false, s.progress, errors.New("they are being written")
}

// kind is a kind of objects.
type kind int

const (
	policyKind kind = iota
	namespaceKind
	podKind
)

func policiesOf(s *state) cache.ReflectorStore {
	return store[*networkingv1.NetworkPolicy, types.NamespacedName]{
		state: s, kind: policyKind, keys: s.model.Policies,
		key: func(p *networkingv1.NetworkPolicy) types.NamespacedName { return nameOf(p) },
		set: func(_ types.NamespacedName, p *networkingv1.NetworkPolicy) {
			s.model.SetPolicy(p)
			select {
			case <-s.needed:
			default:
				close(s.needed)
			}
		},
		remove: func(k types.NamespacedName, _ *networkingv1.NetworkPolicy) { s.model.RemovePolicy(k.Namespace, k.Name) },
	}
}

func namespacesOf(s *state) cache.ReflectorStore {
	return store[*corev1.Namespace, string]{
		state: s, kind: namespaceKind, keys: s.model.Namespaces,
		key:    func(n *corev1.Namespace) string { return n.Name },
		set:    func(name string, n *corev1.Namespace) { s.model.SetNamespace(name, n.Labels) },
		remove: func(name string, _ *corev1.Namespace) { s.model.RemoveNamespace(name) },
	}
}

func podsOf(s *state) cache.ReflectorStore {
	return store[*corev1.Pod, types.UID]{
		state: s, kind: podKind, keys: s.model.Pods,
		key: s.runningUID, set: s.setPod, remove: s.removePod,
	}
}

// runningUID returns the UID under which a pod runs: its static pod's if it is the mirror pod of
// one of this node, else its own. The annotation alone is no proof: any client that may create
// pods can set it.
func (s *state) runningUID(p *corev1.Pod) types.UID {
	uid := source.StaticUID(p)
	if l := s.local[uid]; uid != "" && l.static && l.name == nameOf(p) && p.Spec.NodeName == s.node {
		return uid
	}
	return p.UID
}

func (s *state) setPod(uid types.UID, p *corev1.Pod) {
	pod, found := ruleset.PodOf(p, s.node)
	switch l, local := s.local[uid]; {
	case !found:
		s.removePod(uid, p)
	case local || pod.Local:
		l.watched = &pod
		if uid == p.UID {
			l.name, l.static, l.mirrors = nameOf(p), false, source.StaticUID(p)
		}
		s.setLocal(uid, l)
	default:
		s.model.SetPod(uid, pod)
	}
}

// removePod removes a pod that the API server does not have any more, or that has ended;
// it is nil if that is not known. One that still runs here stays until it is released.
func (s *state) removePod(uid types.UID, p *corev1.Pod) {
	l, local := s.local[uid]
	if !local {
		s.model.RemovePod(uid)
		return
	}
	if l.held != nil && l.watched != nil {
		l.held = l.watched
	}
	l.watched = nil
	if p != nil && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed) {
		l = localPod{} // its addresses may be those of another pod
	}
	s.setLocal(uid, l)
}

// store is the state as the store of a reflector of one kind.
type store[T any, K comparable] struct {
	*state
	kind   kind
	keys   func() []K
	key    func(T) K
	set    func(K, T)
	remove func(K, T)
}

// change calls do with the object and its key.
func (s store[T, K]) change(o any, do func(K, T)) error {
	object, ok := o.(T)
	if !ok {
		return fmt.Errorf("unexpected object %T", o)
	}
	s.mu.Lock()
	do(s.key(object), object)
	s.version++
	s.mu.Unlock()
	s.signal()
	return nil
}

// Add implements cache.ReflectorStore.
func (s store[T, K]) Add(o any) error { return s.change(o, s.set) }

// Update implements cache.ReflectorStore.
func (s store[T, K]) Update(o any) error { return s.change(o, s.set) }

// Delete implements cache.ReflectorStore.
func (s store[T, K]) Delete(o any) error { return s.change(o, s.remove) }

// Replace implements cache.ReflectorStore. Its changes are written together.
func (s store[T, K]) Replace(all []any, _ string) error {
	s.mu.Lock()
	defer s.signal()
	defer s.mu.Unlock()
	found := map[K]bool{}
	for _, o := range all {
		object, ok := o.(T)
		if !ok {
			return fmt.Errorf("unexpected object %T", o)
		}
		found[s.key(object)] = true
		s.set(s.key(object), object)
	}
	for _, k := range s.keys() {
		if !found[k] {
			var none T
			s.remove(k, none)
		}
	}
	s.version++
	s.listed[s.kind] = true
	s.proceed()
	return nil
}

// Resync implements cache.ReflectorStore.
func (store[T, K]) Resync() error { return nil }
