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

// services are those with an address of their own, by namespace and name: what
// containers are told of them in variables, and no more.
type services struct {
	store  *Store
	answer answer
	held   map[string]map[string]*corev1.Service
}

// followServices watches the services of all namespaces, from the first pod to
// the end of the store.
func (s *Store) followServices() *services {
	all := &services{store: s, answer: newAnswer(), held: map[string]map[string]*corev1.Service{}}
	f := s.follower(func() client.ObjectList { return &corev1.ServiceList{} }, client.ListOptions{})
	s.running.Go(func() { f.run(s.context, all) })
	return all
}

// Services are those of a namespace that have an address of their own, by name.
// They hold nothing but their address and their ports. It waits for the API's
// first answer as [Store.ConfigMap] does, once a pod has been registered.
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
