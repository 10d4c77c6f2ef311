package controller

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // the metrics of queues
	"k8s.io/utils/clock"
)

// Queue is where a reconciler's requests wait.
type Queue[Request comparable] = workqueue.TypedRateLimitingInterface[Request]

// newQueue is a queue as kube-controller-manager's, first in, first out, with
// the metrics workqueue_*. Controller-runtime's own would wake an idle process
// twice a second, and that for each controller.
func newQueue[Request comparable](name string, limiter workqueue.TypedRateLimiter[Request]) Queue[Request] {
	return ending[Request]{workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[Request]{Name: name, Clock: QueueClock})}
}

// ending is a queue that hands out nothing once it is shut down: what waits
// then is not for a controller that ends.
type ending[Request comparable] struct{ Queue[Request] }

// Get implements workqueue.TypedInterface.
func (e ending[Request]) Get() (Request, bool) {
	for {
		request, shutdown := e.Queue.Get()
		if shutdown || !e.ShuttingDown() {
			return request, shutdown
		}
		e.Done(request)
	}
}

// QueueClock is the clock of queues that have metrics: it wakes them every 10
// seconds to say for how long they have been working on what is not done yet,
// rather than twice a second.
var QueueClock clock.WithTicker = coarse{clock.RealClock{}}

// metricsAge is how old that figure may be, which is no longer than metrics are
// usually apart.
const metricsAge = 10 * time.Second

// coarse is a clock whose tickers take metricsAge or longer.
type coarse struct{ clock.WithTicker }

// NewTicker implements clock.WithTicker.
func (c coarse) NewTicker(d time.Duration) clock.Ticker {
	return c.WithTicker.NewTicker(max(d, metricsAge))
}
