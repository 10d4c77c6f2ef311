package garbagecollector

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/garbagecollector/graph"
)

// The pauses before a failed action is tried again: the first, and the longest
// of those that each take twice the time of the one before.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 5 * time.Minute
)

// queueName is the queue's name in metrics.
const queueName = "garbagecollector"

func newQueue(c clock.WithTicker) workqueue.TypedRateLimitingInterface[graph.Subject] {
	waiting := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[graph.Subject]{
		Name: queueName, Queue: &turns{waiting: map[string][]graph.Subject{}}, Clock: controller.QueueClock(c),
	})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[graph.Subject]{Name: queueName, Queue: waiting})
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[graph.Subject](firstPause, longestPause),
		workqueue.TypedRateLimitingQueueConfig[graph.Subject]{Name: queueName, DelayingQueue: delaying},
	)
}

// turns is a workqueue.Queue in which namespaces take turns: one of which much
// is to be collected does not keep the others waiting.
type turns struct {
	// waiting are the subjects of each namespace, the first one first.
	waiting map[string][]graph.Subject
	// next are the namespaces for which something waits, in the order of turns.
	next  []string
	count int
}

// Touch implements workqueue.Queue.
func (t *turns) Touch(graph.Subject) {}

// Push implements workqueue.Queue.
func (t *turns) Push(s graph.Subject) {
	namespace := s.Namespace()
	if len(t.waiting[namespace]) == 0 {
		t.next = append(t.next, namespace)
	}
	t.waiting[namespace] = append(t.waiting[namespace], s)
	t.count++
}

// Len implements workqueue.Queue.
func (t *turns) Len() int { return t.count }

// Pop implements workqueue.Queue. There must be something in it.
func (t *turns) Pop() graph.Subject {
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
