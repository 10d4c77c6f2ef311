package garbagecollector

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/garbagecollector/graph"
)

// The backoff of a failed action doubles from minBackoff to maxBackoff.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 5 * time.Minute
)

// queueName is the queue's name in metrics.
const queueName = "garbagecollector"

func newQueue(c clock.WithTicker) workqueue.TypedRateLimitingInterface[graph.Subject] {
	waiting := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[graph.Subject]{
		Name: queueName, Queue: &fairQueue{waiting: map[string][]graph.Subject{}}, Clock: controller.QueueClock(c),
	})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[graph.Subject]{Name: queueName, Queue: waiting, Clock: c})
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[graph.Subject](minBackoff, maxBackoff),
		workqueue.TypedRateLimitingQueueConfig[graph.Subject]{Name: queueName, DelayingQueue: delaying},
	)
}

// fairQueue is a workqueue.Queue that serves namespaces in turn (round robin), so
// that a namespace with many subjects does not delay the others.
type fairQueue struct {
	// waiting are the subjects of each namespace in FIFO order.
	waiting map[string][]graph.Subject
	// next are the namespaces with subjects, in the order in which they are served.
	next  []string
	count int
}

// Touch implements workqueue.Queue.
func (t *fairQueue) Touch(graph.Subject) {}

// Push implements workqueue.Queue.
func (t *fairQueue) Push(s graph.Subject) {
	namespace := s.Namespace()
	if len(t.waiting[namespace]) == 0 {
		t.next = append(t.next, namespace)
	}
	t.waiting[namespace] = append(t.waiting[namespace], s)
	t.count++
}

// Len implements workqueue.Queue.
func (t *fairQueue) Len() int { return t.count }

// Pop implements workqueue.Queue. The queue must not be empty.
func (t *fairQueue) Pop() graph.Subject {
	namespace := t.next[0]
	t.next = t.next[1:]
	subjects := t.waiting[namespace]
	s := subjects[0]
	subjects[0] = graph.Subject{}
	t.count--
	if len(subjects) == 1 {
		delete(t.waiting, namespace)
		return s
	}
	t.waiting[namespace] = subjects[1:]
	t.next = append(t.next, namespace)
	return s
}
