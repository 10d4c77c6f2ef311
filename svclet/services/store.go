package services

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"svc.dev/svc/svclet/reflector"
)

// Key is a namespace and a name.
type Key = types.NamespacedName

// Foreign reports whether another proxy serves a service: a label has its name.
func Foreign(s *corev1.Service) bool {
	_, foreign := s.Labels["service.kubernetes.io/service-proxy-name"]
	return foreign
}

// kinds is the number of kinds in a store.
const kinds = 2

// Object is a service with its endpoint slices, of which there may be some without a
// service.
type Object struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice
}

// Store is what the API server has of services and their endpoints. The objects are
// never changed.
type Store struct {
	mu       sync.Mutex
	services map[Key]*corev1.Service
	slices   map[Key]*discoveryv1.EndpointSlice
	// slicesOf are the names of the slices of each service.
	slicesOf map[Key]map[string]bool
	// inNamespace counts the services of each namespace.
	inNamespace map[string]int
	// owners counts, for each address, what has it of a service: its cluster IPs and its
	// endpoints.
	owners map[netip.Addr]map[Key]int
	// listed are the kinds of which all objects are known, and complete is closed when
	// these are all.
	listed    map[string]bool
	complete  chan struct{}
	followers []*Changes
}

// New returns an empty store.
func New() *Store {
	return &Store{
		services: map[Key]*corev1.Service{}, slices: map[Key]*discoveryv1.EndpointSlice{}, slicesOf: map[Key]map[string]bool{},
		inNamespace: map[string]int{}, owners: map[netip.Addr]map[Key]int{}, listed: map[string]bool{}, complete: make(chan struct{}),
	}
}

// Run follows the objects of the API server until ctx is done.
func (s *Store) Run(ctx context.Context, core, discovery rest.Interface) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		reflector.Run(ctx, core, "services", fields.Everything(), &corev1.Service{}, "services", s.Services())
	})
	watching.Go(func() {
		reflector.Run(ctx, discovery, "endpointslices", fields.Everything(), &discoveryv1.EndpointSlice{}, "endpoint slices", s.EndpointSlices())
	})
}

// Forbidden reports whether the API server forbids this node to read services or endpoint
// slices: then no store becomes complete. Kubernetes' own grants its nodes no endpoint
// slices.
func Forbidden(ctx context.Context, core, discovery rest.Interface) bool {
	for _, request := range []*rest.Request{core.Get().Resource("services"), discovery.Get().Resource("endpointslices")} {
		if err := request.VersionedParams(&metav1.ListOptions{Limit: 1}, metav1.ParameterCodec).Do(ctx).Error(); apierrors.IsForbidden(err) {
			return true
		}
	}
	return false
}

// Changes are the services that have changed in a store.
type Changes struct {
	// Changed has a value when there may be changes to take.
	Changed chan struct{}
	store   *Store
	dirty   map[Key]bool
}

// Follow returns the changes from now on.
func (s *Store) Follow() *Changes {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Changes{Changed: make(chan struct{}, 1), store: s, dirty: map[Key]bool{}}
	s.followers = append(s.followers, c)
	return c
}

// Signal makes Changed have a value.
func (c *Changes) Signal() {
	select {
	case c.Changed <- struct{}{}:
	default:
	}
}

// Take returns the services that have changed since the last call. synced is false
// before all objects are known.
func (c *Changes) Take() (changes map[Key]bool, synced bool) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if !c.store.Synced() {
		return nil, false
	}
	changes, c.dirty = c.dirty, map[Key]bool{}
	return changes, true
}

// Complete returns a channel that is closed as soon as all objects are known.
func (s *Store) Complete() <-chan struct{} { return s.complete }

// Synced reports whether all objects are known.
func (s *Store) Synced() bool {
	select {
	case <-s.complete:
		return true
	default:
		return false
	}
}

// Keys returns the services in order.
func (s *Store) Keys() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sorted(maps.Keys(s.services))
}

func sorted(keys func(func(Key) bool)) []Key {
	return slices.SortedFunc(keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// Get returns a service with its endpoints; the service is nil if there is none.
func (s *Store) Get(k Key) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	result := Object{Service: s.services[k]}
	for _, name := range slices.Sorted(maps.Keys(s.slicesOf[k])) {
		result.Slices = append(result.Slices, s.slices[Key{Namespace: k.Namespace, Name: name}])
	}
	return result
}

// HasNamespace reports whether a namespace has services.
func (s *Store) HasNamespace(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inNamespace[name] > 0
}

// ByAddress returns, in order, the services that have an address: as a cluster IP or as
// that of an endpoint.
func (s *Store) ByAddress(address netip.Addr) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sorted(maps.Keys(s.owners[address]))
}

// changed records the change of a service. The caller holds the lock.
func (s *Store) changed(k Key) {
	for _, f := range s.followers {
		f.dirty[k] = true
	}
}

func (s *Store) signal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.followers {
		f.Signal()
	}
}

// own counts what a service has of an address, in whichever notation that is.
func (s *Store) own(text string, of Key, change int) {
	address, ok := Address(text)
	if !ok {
		return // such as None, of a headless service
	}
	if s.owners[address] == nil {
		s.owners[address] = map[Key]int{}
	}
	if s.owners[address][of] += change; s.owners[address][of] == 0 {
		delete(s.owners[address], of)
	}
	if len(s.owners[address]) == 0 {
		delete(s.owners, address)
	}
}

func (s *Store) setService(k Key, service *corev1.Service) {
	s.removeService(k)
	service.ManagedFields = nil
	s.services[k] = service
	s.inNamespace[k.Namespace]++
	for _, address := range service.Spec.ClusterIPs {
		s.own(address, k, 1)
	}
	s.changed(k)
}

func (s *Store) removeService(k Key) {
	service := s.services[k]
	if service == nil {
		return
	}
	delete(s.services, k)
	if s.inNamespace[k.Namespace]--; s.inNamespace[k.Namespace] == 0 {
		delete(s.inNamespace, k.Namespace)
	}
	for _, address := range service.Spec.ClusterIPs {
		s.own(address, k, -1)
	}
	s.changed(k)
}

func (s *Store) setSlice(k Key, slice *discoveryv1.EndpointSlice) {
	s.removeSlice(k) // the label may name another service now
	slice.ManagedFields = nil
	s.slices[k] = slice
	of := serviceOf(slice)
	if s.slicesOf[of] == nil {
		s.slicesOf[of] = map[string]bool{}
	}
	s.slicesOf[of][k.Name] = true
	s.ownEndpoints(slice, of, 1)
	s.changed(of)
}

func (s *Store) removeSlice(k Key) {
	slice := s.slices[k]
	if slice == nil {
		return
	}
	delete(s.slices, k)
	of := serviceOf(slice)
	if delete(s.slicesOf[of], k.Name); len(s.slicesOf[of]) == 0 {
		delete(s.slicesOf, of)
	}
	s.ownEndpoints(slice, of, -1)
	s.changed(of)
}

func (s *Store) ownEndpoints(slice *discoveryv1.EndpointSlice, of Key, change int) {
	for _, e := range slice.Endpoints {
		for _, address := range e.Addresses {
			s.own(address, of, change)
		}
	}
}

// serviceOf returns the service of an endpoint slice.
func serviceOf(slice *discoveryv1.EndpointSlice) Key {
	return Key{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
}

// kindStore is the part of the store that has objects of one kind.
type kindStore[T any, P interface {
	*T
	GetNamespace() string
	GetName() string
}] struct {
	*Store
	objects map[Key]P
	set     func(Key, P)
	remove  func(Key)
}

// Services returns the store of services, for a reflector.
func (s *Store) Services() cache.ReflectorStore {
	return kindStore[corev1.Service, *corev1.Service]{s, s.services, s.setService, s.removeService}
}

// EndpointSlices returns the store of endpoint slices, for a reflector.
func (s *Store) EndpointSlices() cache.ReflectorStore {
	return kindStore[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice]{s, s.slices, s.setSlice, s.removeSlice}
}

// change calls do with the object and its key.
func (s kindStore[T, P]) change(o any, do func(Key, P)) error {
	object, ok := o.(P)
	if !ok {
		return fmt.Errorf("unexpected object %T", o)
	}
	s.mu.Lock()
	do(Key{Namespace: object.GetNamespace(), Name: object.GetName()}, object)
	s.mu.Unlock()
	s.signal()
	return nil
}

// Add implements cache.ReflectorStore.
func (s kindStore[T, P]) Add(o any) error { return s.change(o, s.set) }

// Update implements cache.ReflectorStore.
func (s kindStore[T, P]) Update(o any) error { return s.change(o, s.set) }

// Delete implements cache.ReflectorStore.
func (s kindStore[T, P]) Delete(o any) error {
	return s.change(o, func(k Key, _ P) { s.remove(k) })
}

// Replace implements cache.ReflectorStore. Its changes are taken together.
func (s kindStore[T, P]) Replace(all []any, _ string) error {
	defer s.signal()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range slices.Collect(maps.Keys(s.objects)) {
		s.remove(k)
	}
	for _, o := range all {
		object, ok := o.(P)
		if !ok {
			return fmt.Errorf("unexpected object %T", o)
		}
		s.set(Key{Namespace: object.GetNamespace(), Name: object.GetName()}, object)
	}
	s.listed[fmt.Sprintf("%T", *new(T))] = true
	if len(s.listed) == kinds && !s.Synced() {
		close(s.complete)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (kindStore[T, P]) Resync() error { return nil }
