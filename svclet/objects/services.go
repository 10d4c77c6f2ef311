package objects

import (
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// services are the services with a cluster IP, by namespace and name, reduced to
// what the variables of containers need.
type services struct {
	store  *Store
	answer answer
	held   map[string]map[string]*corev1.Service
}

// followServices watches the services of all namespaces, from the first pod until
// the store is closed.
func (s *Store) followServices() *services {
	all := &services{store: s, answer: newAnswer(), held: map[string]map[string]*corev1.Service{}}
	f := s.follower(func() client.ObjectList { return &corev1.ServiceList{} }, client.ListOptions{})
	s.running.Go(func() { f.run(s.context, all) })
	return all
}

// Services returns the services of a namespace that have a cluster IP, sorted by
// name and reduced to addresses and ports. It waits for the first list like
// [Store.ConfigMap], once a pod is registered.
func (s *Store) Services(ctx context.Context, namespace string) ([]*corev1.Service, error) {
	s.mutex.Lock()
	all := s.services
	s.mutex.Unlock()
	if all == nil || s.await(ctx, &all.answer) != nil {
		return nil, errors.New("services have not yet been read at least once, cannot construct envvars")
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	held := all.held[namespace]
	list := make([]*corev1.Service, 0, len(held))
	for _, name := range slices.Sorted(maps.Keys(held)) {
		list = append(list, held[name])
	}
	return list, nil
}

func (all *services) replace(list []client.Object) bool {
	all.store.mutex.Lock()
	defer all.store.mutex.Unlock()
	clear(all.held)
	for _, o := range list {
		all.put(o.(*corev1.Service))
	}
	all.answer.give()
	return false
}

func (all *services) set(o client.Object) bool {
	all.store.mutex.Lock()
	defer all.store.mutex.Unlock()
	all.put(o.(*corev1.Service))
	return false
}

func (all *services) put(s *corev1.Service) {
	if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
		all.drop(s)
		return
	}
	kept := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
		Spec:       corev1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, Ports: make([]corev1.ServicePort, len(s.Spec.Ports))},
	}
	for i, p := range s.Spec.Ports {
		kept.Spec.Ports[i] = corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port}
	}
	if all.held[s.Namespace] == nil {
		all.held[s.Namespace] = map[string]*corev1.Service{}
	}
	all.held[s.Namespace][s.Name] = kept
}

func (all *services) remove(o client.Object) {
	all.store.mutex.Lock()
	defer all.store.mutex.Unlock()
	all.drop(o)
}

func (all *services) drop(o client.Object) {
	delete(all.held[o.GetNamespace()], o.GetName())
	if len(all.held[o.GetNamespace()]) == 0 {
		delete(all.held, o.GetNamespace())
	}
}

func (all *services) failed(err error) {
	all.store.mutex.Lock()
	all.answer.err = err
	all.store.mutex.Unlock()
}
