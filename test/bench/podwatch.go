package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

// podWatch reports when pods get an expected state, as the API's users
// see it: by a watch.
type podWatch struct {
	ctrlclient.WithWatch
	namespace string
	pods      watch.Interface
	done      sync.WaitGroup

	mu       sync.Mutex
	expected map[string]expectation // by the pod's name
}

type expectation struct {
	holds func(watch.EventType, *corev1.Pod) bool
	at    chan time.Time // capacity 1
}

// watchPods begins to watch the pods of a namespace. The caller stops it.
func watchPods(ctx context.Context, config *rest.Config, namespace string) (*podWatch, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := ctrlclient.NewWithWatch(config, ctrlclient.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	pods, err := client.Watch(ctx, &corev1.PodList{}, ctrlclient.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	w := &podWatch{WithWatch: client, namespace: namespace, pods: pods, expected: map[string]expectation{}}
	w.done.Go(w.follow)
	return w, nil
}

func (w *podWatch) stop() {
	w.pods.Stop()
	w.done.Wait()
}

func (w *podWatch) follow() {
	for event := range w.pods.ResultChan() {
		now := time.Now()
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue // the expected state was not reached
		}
		w.mu.Lock()
		if e, ok := w.expected[pod.Name]; ok && e.holds(event.Type, pod) {
			delete(w.expected, pod.Name)
			e.at <- now
		}
		w.mu.Unlock()
	}
}

// expect is to be called before what leads to the expectation.
func (w *podWatch) expect(name string, holds func(watch.EventType, *corev1.Pod) bool) <-chan time.Time {
	at := make(chan time.Time, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected[name] = expectation{holds, at}
	return at
}

// podTimeout bounds the time of one pod's way to what is expected of it.
const podTimeout = 2 * time.Minute

// took does something to a pod, and returns how long it took from then on until
// what is expected of the pod was seen.
func (w *podWatch) took(ctx context.Context, name string, holds func(watch.EventType, *corev1.Pod) bool, do func() error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	at := w.expect(name, holds)
	began := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	select {
	case then := <-at:
		return then.Sub(began), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("the pod %s/%s has not become what it should: %w", w.namespace, name, ctx.Err())
	}
}

// isRunning is true of a pod of which all containers run, after restarts.
func isRunning(restarts int32) func(watch.EventType, *corev1.Pod) bool {
	return func(_ watch.EventType, pod *corev1.Pod) bool {
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Running == nil || c.RestartCount != restarts {
				return false
			}
		}
		return pod.Status.Phase == corev1.PodRunning && len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers)
	}
}

func isGone(event watch.EventType, _ *corev1.Pod) bool { return event == watch.Deleted }
