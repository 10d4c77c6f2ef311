package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolswatch "k8s.io/client-go/tools/watch"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

// podWatch reports when a watch of the API shows pods in an expected state.
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

// watchPods starts a watch of the pods of a namespace. The caller stops it.
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
	list := &corev1.PodList{}
	if err := client.List(ctx, list, ctrlclient.InNamespace(namespace)); err != nil {
		return nil, err
	}
	// While a machine starts many pods, an API server may end the watch of a client that does
	// not keep up.
	pods, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, podsAfter{client, namespace})
	if err != nil {
		return nil, err
	}
	w := &podWatch{WithWatch: client, namespace: namespace, pods: pods, expected: map[string]expectation{}}
	w.done.Go(w.follow)
	return w, nil
}

// podsAfter watches the pods of a namespace.
type podsAfter struct {
	client    ctrlclient.WithWatch
	namespace string
}

// WatchWithContext starts a watch at the resource version of the options.
func (p podsAfter) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return p.client.Watch(ctx, &corev1.PodList{}, &ctrlclient.ListOptions{Namespace: p.namespace, Raw: &options})
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

// expect returns a channel that receives the time at which the pod meets the
// condition. It must be called before the change that leads to it.
func (w *podWatch) expect(name string, holds func(watch.EventType, *corev1.Pod) bool) <-chan time.Time {
	at := make(chan time.Time, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected[name] = expectation{holds, at}
	return at
}

// podTimeout bounds the wait for the expected state of one pod, which may be the last of
// 110 that are created at once.
const podTimeout = 10 * time.Minute

// took calls do, and returns the time from then until the pod meets the condition.
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
		return 0, fmt.Errorf("the pod %s/%s has not reached the expected state: %w", w.namespace, name, ctx.Err())
	}
}

// isRunning returns a condition: all containers of the pod run, after a number of
// restarts.
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
