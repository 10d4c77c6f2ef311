package source

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"svc.dev/svc/svclet/reflector"
)

// watchAPI watches the pods that are bound to this node until ctx is done.
func (s *Sources) watchAPI(ctx context.Context) {
	here := fields.OneTermEqualSelector("spec.nodeName", s.o.NodeName)
	store := &apiStore{s: s, ctx: ctx, mirrors: map[string]*corev1.Pod{}}
	reflector.Run(ctx, s.o.Core, "pods", here, &corev1.Pod{}, "pods of this node", store)
}

// apiStore is the reflector's store of pods. Pods other than mirrors are kept by
// Sources alone.
type apiStore struct {
	s   *Sources
	ctx context.Context
	// mirrors are the mirror pods by UID, to find those that the next list no longer
	// has.
	mirrors map[string]*corev1.Pod
}

// Add implements cache.ReflectorStore.
func (a *apiStore) Add(obj any) error { return a.Update(obj) }

// Update implements cache.ReflectorStore.
func (a *apiStore) Update(obj any) error {
	pod, err := received(obj)
	if err != nil {
		return err
	}
	if IsMirror(pod) {
		a.mirror(pod)
	} else {
		a.s.set(a.ctx, API, pod)
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (a *apiStore) Delete(obj any) error {
	pod, err := received(obj)
	if err != nil {
		return err
	}
	a.gone(pod)
	if !IsMirror(pod) {
		a.s.remove(a.ctx, API, pod.UID)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (a *apiStore) Replace(objs []any, _ string) error {
	listed := make(map[string]bool, len(objs))
	pods := make([]*corev1.Pod, 0, len(objs))
	for _, obj := range objs {
		pod, err := received(obj)
		if err != nil {
			return err
		}
		listed[string(pod.UID)] = true
		pods = append(pods, pod)
	}
	for uid, mirror := range a.mirrors {
		if !listed[uid] {
			a.gone(mirror)
		}
	}
	for _, pod := range a.s.of(API) {
		if !listed[string(pod.UID)] {
			a.gone(pod)
		}
	}
	wanted := pods[:0]
	for _, pod := range pods {
		if IsMirror(pod) {
			a.mirror(pod)
			continue
		}
		wanted = append(wanted, pod)
	}
	a.s.mirrors.listed()
	a.s.replace(a.ctx, API, wanted)
	return nil
}

// Resync implements cache.ReflectorStore. It is never called.
func (a *apiStore) Resync() error { return nil }

func (a *apiStore) mirror(pod *corev1.Pod) {
	a.mirrors[string(pod.UID)] = pod
	call(a.s.o.Observed, pod)
	a.s.mirrors.observed(pod)
}

func (a *apiStore) gone(pod *corev1.Pod) {
	call(a.s.o.Gone, pod)
	if IsMirror(pod) {
		delete(a.mirrors, string(pod.UID))
		a.s.mirrors.gone(pod)
	}
}

// call calls a function of the options, which may be nil.
func call(f func(*corev1.Pod), pod *corev1.Pod) {
	if f != nil {
		f(pod)
	}
}

// of returns the pods of one source.
func (s *Sources) of(source string) []*corev1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pods := make([]*corev1.Pod, 0, len(s.pods[source]))
	for _, pod := range s.pods[source] {
		pods = append(pods, pod)
	}
	return pods
}

// received returns the pod without fields that no node needs.
func received(obj any) (*corev1.Pod, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("the API server sent a %T among pods", obj))
	}
	pod.ManagedFields = nil
	return pod, nil
}
