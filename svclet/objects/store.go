package objects

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options configure a [Store].
type Options struct {
	// Client is a client of the API server, which lists and watches ConfigMaps,
	// Secrets, Services, ClusterTrustBundles and PodCertificateRequests, reads claims,
	// persistent volumes, service accounts and the Node, and creates tokens and
	// PodCertificateRequests.
	// It must have no timeout, which would end watches too.
	Client client.WithWatch
	// Changed is called with the pods whose objects have changed, appeared or
	// disappeared, or whose tokens or certificates are due, so that the caller refreshes
	// their volumes and retries their containers. It is called without a lock, from several
	// goroutines, and must not block.
	Changed func(pods []types.UID)
	// NodeName is the name of the node, which is part of requests for certificates of pods.
	NodeName string
	// Warn records a warning event about a pod. By default there are none.
	Warn func(pod *corev1.Pod, reason, message string)
	// Clock is the system clock by default.
	Clock clock.WithDelayedExecution
	// Random returns a number in [0, 1) for jitter; math/rand's by default.
	Random func() float64
	// Log is klog's by default.
	Log klog.Logger
}

// Store watches the objects that registered pods refer to. The objects that it
// returns are shared and must not be modified; they have data and no metadata
// except their names.
type Store struct {
	Options

	context context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mutex        sync.Mutex
	closed       bool
	pods         map[types.UID]map[reference]bool
	entries      map[reference]*entry
	services     *services
	tokens       tokens
	certificates certificates
	alarm        alarm
}

// entry is an object that pods refer to.
type entry struct {
	pods map[types.UID]bool
	stop context.CancelFunc
	// object is nil if it does not exist.
	object client.Object
	// bundles are those of a signer, by name.
	bundles map[string]*certificatesv1.ClusterTrustBundle
	answer  answer
}

// New returns a store that watches nothing yet.
func New(options Options) *Store {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Random == nil {
		options.Random = rand.Float64
	}
	if options.Changed == nil {
		options.Changed = func([]types.UID) {}
	}
	if options.Warn == nil {
		options.Warn = func(*corev1.Pod, string, string) {}
	}
	if options.Log.GetSink() == nil {
		options.Log = klog.Background()
	}
	s := &Store{
		Options: options, pods: map[types.UID]map[reference]bool{}, entries: map[reference]*entry{},
		tokens:       tokens{byKey: map[tokenKey]*token{}},
		certificates: certificates{byKey: map[certificateKey]*certificate{}, pods: map[types.UID]bool{}},
	}
	s.context, s.stop = context.WithCancel(klog.NewContext(context.Background(), options.Log))
	return s
}

// Close stops all watches and waits for all goroutines.
func (s *Store) Close() {
	s.mutex.Lock()
	s.closed = true
	s.alarm.disarm()
	s.mutex.Unlock()
	s.stop()
	s.running.Wait()
}

// Register starts to watch the objects that a pod refers to. After a change of the
// pod it must be called again.
func (s *Store) Register(pod *corev1.Pod) {
	named := references(pod)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return
	}
	if s.services == nil {
		s.services = s.followServices()
	}
	s.registerCertificates(pod)
	before := s.pods[pod.UID]
	s.pods[pod.UID] = named
	for ref := range named {
		if !before[ref] {
			s.hold(ref, pod.UID)
		}
	}
	for ref := range before {
		if !named[ref] {
			s.release(ref, pod.UID)
		}
	}
}

// Unregister removes a pod, its tokens and certificates, and the objects that no other pod refers
// to. It is not an error if the pod is not registered.
func (s *Store) Unregister(uid types.UID) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for ref := range s.pods[uid] {
		s.release(ref, uid)
	}
	delete(s.pods, uid)
	s.tokens.forget(uid)
	s.forgetCertificates(uid)
	if len(s.tokens.byKey)+len(s.certificates.byKey) == 0 {
		s.alarm.disarm()
	}
}

func (s *Store) hold(ref reference, uid types.UID) {
	e := s.entries[ref]
	if e == nil {
		e = &entry{pods: map[types.UID]bool{}, answer: newAnswer()}
		s.entries[ref] = e
		var ctx context.Context
		ctx, e.stop = context.WithCancel(s.context)
		k := kinds[ref.kind]
		f := s.follower(k.list, client.ListOptions{Namespace: ref.namespace, FieldSelector: fields.OneTermEqualSelector(k.field, ref.name)})
		f.older = k.older
		to := receiver{store: s, ref: ref, entry: e}
		if ref.kind == signerBundles {
			s.running.Go(func() { f.run(ctx, &bundlesReceiver{to}) })
		} else {
			s.running.Go(func() { f.run(ctx, &to) })
		}
	}
	e.pods[uid] = true
}

func (s *Store) release(ref reference, uid types.UID) {
	e := s.entries[ref]
	delete(e.pods, uid)
	if len(e.pods) == 0 {
		e.stop()
		delete(s.entries, ref)
	}
}

// ConfigMap returns a ConfigMap that a registered pod refers to. It waits for the
// first list until ctx is done, or until the API server has returned an error for
// a second.
func (s *Store) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	object, err := s.object(ctx, reference{configMap, namespace, name})
	if err != nil {
		return nil, err
	}
	return object.(*corev1.ConfigMap), nil
}

// Secret returns a Secret that a registered pod refers to; see [Store.ConfigMap].
func (s *Store) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	object, err := s.object(ctx, reference{secret, namespace, name})
	if err != nil {
		return nil, err
	}
	return object.(*corev1.Secret), nil
}

// listed returns the entry of a reference once there is a first list of it.
func (s *Store) listed(ctx context.Context, ref reference) (*entry, error) {
	s.mutex.Lock()
	e := s.entries[ref]
	s.mutex.Unlock()
	if e == nil {
		return nil, fmt.Errorf("object %q/%q not registered", ref.namespace, ref.name)
	}
	if err := s.await(ctx, &e.answer); err != nil {
		return nil, fmt.Errorf("failed to sync %s cache: %w", ref.kind, err)
	}
	return e, nil
}

func (s *Store) object(ctx context.Context, ref reference) (client.Object, error) {
	e, err := s.listed(ctx, ref)
	if err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if e.object == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: string(ref.kind)}, ref.name)
	}
	return e.object, nil
}

// answer is the first list of an object. It is guarded by the store's mutex,
// except for its channel.
type answer struct {
	given chan struct{}
	// err is why there is none yet.
	err error
	// missed reports that a caller has given up waiting for it.
	missed bool
}

func newAnswer() answer { return answer{given: make(chan struct{})} }

// give reports whether this is the first answer, and whether a caller had given up
// waiting for it.
func (a *answer) give() (first, missed bool) {
	select {
	case <-a.given:
		return false, false
	default:
		close(a.given)
		a.err = nil
		return true, a.missed
	}
}

// errorTimeout is how long errors of the API server are treated as temporary: the
// node authorizer, for example, receives a pod later than its node. Kubelet's value
// is the same.
const errorTimeout = time.Second

func (s *Store) await(ctx context.Context, a *answer) error {
	select {
	case <-a.given:
		return nil
	default:
	}
	timer := s.Clock.NewTimer(errorTimeout)
	defer timer.Stop()
	for {
		var err error
		select {
		case <-a.given:
			return nil
		case <-s.context.Done():
			return context.Cause(s.context)
		case <-ctx.Done():
			err = wait.ErrorInterrupted(ctx.Err())
		case <-timer.C():
			timer.Reset(errorTimeout)
		}
		s.mutex.Lock()
		if a.err != nil {
			err = a.err
		}
		if err != nil {
			a.missed = true
		}
		s.mutex.Unlock()
		if err != nil {
			return err
		}
	}
}

// receiver receives the changes of one object.
type receiver struct {
	store *Store
	ref   reference
	entry *entry
}

func (r *receiver) replace(list []client.Object) bool {
	if len(list) == 0 {
		return r.put(nil)
	}
	return r.put(list[0])
}

func (r *receiver) set(object client.Object) bool { return r.put(object) }

func (r *receiver) remove(client.Object) { r.put(nil) }

func (r *receiver) failed(err error) {
	r.store.mutex.Lock()
	r.entry.answer.err = err
	r.store.mutex.Unlock()
}

// put reports whether the object is final: an immutable object never changes
// (KEP-1412).
func (r *receiver) put(object client.Object) (final bool) {
	if object != nil {
		object, final = kinds[r.ref.kind].slim(object)
	}
	r.update(func(e *entry) (changed bool) {
		changed = !reflect.DeepEqual(e.object, object)
		e.object = object
		return changed
	})
	return final
}

// update changes the entry, and reports the change to the pods that refer to it, unless it
// is the first answer and no caller has given up waiting for it.
func (r *receiver) update(change func(*entry) (changed bool)) {
	r.store.mutex.Lock()
	changed := change(r.entry)
	first, missed := r.entry.answer.give()
	changed = missed || !first && changed
	pods := slices.Sorted(maps.Keys(r.entry.pods))
	r.store.mutex.Unlock()
	if changed && len(pods) > 0 {
		r.store.Changed(pods)
	}
}
