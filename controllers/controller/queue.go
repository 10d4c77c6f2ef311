package controller

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // registers the metrics of work queues
	"k8s.io/utils/clock"
)

// Queue is the work queue of a reconciler.
type Queue[Request comparable] = workqueue.TypedRateLimitingInterface[Request]

// newQueue returns a work queue like those of kube-controller-manager: first in,
// first out, with the metrics workqueue_*. Controller-runtime's own priority
// queue wakes an idle process twice a second for each controller.
func newQueue[Request comparable](c clock.WithTicker, name string, limiter workqueue.TypedRateLimiter[Request]) Queue[Request] {
	return draining[Request]{workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[Request]{Name: name, Clock: QueueClock(c)})}
}

// draining is a queue that hands out no request after it is shut down, so that
// a controller that stops begins no further sync.
type draining[Request comparable] struct{ Queue[Request] }

// Get implements workqueue.TypedInterface.
func (d draining[Request]) Get() (Request, bool) {
	for {
		request, shutdown := d.Queue.Get()
		if shutdown || !d.ShuttingDown() {
			return request, shutdown
		}
		d.Done(request)
	}
}

// QueueClock returns the clock for a work queue with metrics. A queue updates
// workqueue_unfinished_work_seconds at every tick: with this clock every 10
// seconds, rather than twice a second.
func QueueClock(c clock.WithTicker) clock.WithTicker { return coarse{c} }

// metricsPeriod is the shortest time between two updates of that metric. It is
// not longer than the usual scrape interval.
const metricsPeriod = 10 * time.Second

// coarse is a clock whose tickers have a period of metricsPeriod or longer.
type coarse struct{ clock.WithTicker }

// NewTicker implements clock.WithTicker.
func (c coarse) NewTicker(d time.Duration) clock.Ticker {
	return c.WithTicker.NewTicker(max(d, metricsPeriod))
}
