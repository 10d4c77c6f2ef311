//go:build linux

package proxy

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"svc.dev/svc/svclet/proxy/ruleset"
)

// key is a namespace and a name.
type key = types.NamespacedName

// state is what the API server has of services and their endpoints, and which services
// have changed.
type state struct {
	// changed has a value when there may be changes to take.
	changed chan struct{}

	mu       sync.Mutex
	services map[key]*corev1.Service
	slices   map[key]*discoveryv1.EndpointSlice
	// slicesOf are the names of the slices of each service.
	slicesOf map[key]map[string]bool
	dirty    map[key]bool
	// listed are the kinds of which all objects are known.
	listed map[string]bool
}

func newState() *state {
	return &state{
		changed: make(chan struct{}, 1), services: map[key]*corev1.Service{}, slices: map[key]*discoveryv1.EndpointSlice{},
		slicesOf: map[key]map[string]bool{}, dirty: map[key]bool{}, listed: map[string]bool{},
	}
}

func (s *state) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// take returns the services that have changed since the last call. synced is false
// before all objects are known.
func (s *state) take() (changes map[key]bool, synced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listed) < 2 {
		return nil, false
	}
	changes, s.dirty = s.dirty, map[key]bool{}
	return changes, true
}

func (s *state) keys() []key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.services), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// service returns a service with its endpoints; it is nil if there is none.
func (s *state) service(k key) ruleset.Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	result := ruleset.Service{Service: s.services[k]}
	for _, name := range slices.Sorted(maps.Keys(s.slicesOf[k])) {
		result.Slices = append(result.Slices, s.slices[key{Namespace: k.Namespace, Name: name}])
	}
	return result
}

func (s *state) setService(k key, service *corev1.Service) {
	service.ManagedFields = nil
	s.services[k], s.dirty[k] = service, true
}

func (s *state) removeService(k key) {
	delete(s.services, k)
	s.dirty[k] = true
}

func (s *state) setSlice(k key, slice *discoveryv1.EndpointSlice) {
	s.removeSlice(k) // the label may name another service now
	slice.ManagedFields = nil
	s.slices[k] = slice
	of := serviceOf(slice)
	if s.slicesOf[of] == nil {
		s.slicesOf[of] = map[string]bool{}
	}
	s.slicesOf[of][k.Name], s.dirty[of] = true, true
}

func (s *state) removeSlice(k key) {
	slice := s.slices[k]
	if slice == nil {
		return
	}
	delete(s.slices, k)
	of := serviceOf(slice)
	if delete(s.slicesOf[of], k.Name); len(s.slicesOf[of]) == 0 {
		delete(s.slicesOf, of)
	}
	s.dirty[of] = true
}

// serviceOf returns the service of an endpoint slice.
func serviceOf(slice *discoveryv1.EndpointSlice) key {
	return key{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
}

// store is the state as the store of a reflector of one kind.
type store[T any, P interface {
	*T
	GetNamespace() string
	GetName() string
}] struct {
	*state
	objects map[key]P
	set     func(key, P)
	remove  func(key)
}

func servicesOf(s *state) cache.ReflectorStore {
	return store[corev1.Service, *corev1.Service]{s, s.services, s.setService, s.removeService}
}

func endpointSlicesOf(s *state) cache.ReflectorStore {
	return store[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice]{s, s.slices, s.setSlice, s.removeSlice}
}

// change calls do with the object and its key.
func (s store[T, P]) change(o any, do func(key, P)) error {
	object, ok := o.(P)
	if !ok {
		return fmt.Errorf("unexpected object %T", o)
	}
	s.mu.Lock()
	do(key{Namespace: object.GetNamespace(), Name: object.GetName()}, object)
	s.mu.Unlock()
	s.signal()
	return nil
}

// Add implements cache.ReflectorStore.
func (s store[T, P]) Add(o any) error { return s.change(o, s.set) }

// Update implements cache.ReflectorStore.
func (s store[T, P]) Update(o any) error { return s.change(o, s.set) }

// Delete implements cache.ReflectorStore.
func (s store[T, P]) Delete(o any) error { return s.change(o, func(k key, _ P) { s.remove(k) }) }

// Replace implements cache.ReflectorStore. Its changes are taken together.
func (s store[T, P]) Replace(all []any, _ string) error {
	s.mu.Lock()
	defer s.signal()
	defer s.mu.Unlock()
	for _, k := range slices.Collect(maps.Keys(s.objects)) {
		s.remove(k)
	}
	for _, o := range all {
		object, ok := o.(P)
		if !ok {
			return fmt.Errorf("unexpected object %T", o)
		}
		s.set(key{Namespace: object.GetNamespace(), Name: object.GetName()}, object)
	}
	s.listed[fmt.Sprintf("%T", *new(T))] = true
	return nil
}

// Resync implements cache.ReflectorStore.
func (store[T, P]) Resync() error { return nil }

// writeSysctl sets a parameter of the kernel.
func writeSysctl(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o600)
}
