package controller

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // registers the metrics of work queues
	"k8s.io/utils/clock"
)

// Queue is the work queue of a reconciler.
type Queue[Request comparable] = workqueue.TypedRateLimitingInterface[Request]

// newQueue returns a work queue like those of kube-controller-manager, with the
// metrics workqueue_*: first in, first out, unless another order is given.
// Controller-runtime's own priority queue wakes an idle process twice a second for
// each controller.
func newQueue[Request comparable](c clock.WithTicker, name string, limiter workqueue.TypedRateLimiter[Request], order workqueue.Queue[Request]) Queue[Request] {
	c = coarse{c}
	if order == nil {
		order = workqueue.DefaultQueue[Request]()
	}
	ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[Request]{Name: name, Clock: c, Queue: order})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[Request]{Name: name, Clock: c, Queue: ordered})
	return draining[Request]{workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[Request]{DelayingQueue: delaying})}
}

// draining is a queue that hands out no request after it is shut down, so that
// a controller that stops begins no further sync.
type draining[Request comparable] struct{ Queue[Request] }

// ShutDown implements workqueue.TypedInterface. It takes out what is left: a controller
// that stops while it starts has no workers for it, and workqueue_depth would count it
// as long as the process runs.
func (d draining[Request]) ShutDown() {
	d.Queue.ShutDown()
	for {
		request, shutdown := d.Queue.Get()
		if shutdown {
			return
		}
		d.Done(request)
	}
}

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

// metricsPeriod is the shortest time between two updates of
// workqueue_unfinished_work_seconds, which a queue updates at every tick of its
// clock. It is not longer than the usual scrape interval.
const metricsPeriod = 10 * time.Second

// coarse is a clock for a work queue: its tickers have a period of metricsPeriod or
// longer, rather than half a second.
type coarse struct{ clock.WithTicker }

// NewTicker implements clock.WithTicker.
func (c coarse) NewTicker(d time.Duration) clock.Ticker {
	return c.WithTicker.NewTicker(max(d, metricsPeriod))
}
