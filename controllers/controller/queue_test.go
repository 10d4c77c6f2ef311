package controller

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"
)

func TestQueueThatIsShutDownWithoutWorkersIsEmpty(t *testing.T) {
	q := newQueue(clock.RealClock{}, string(uuid.NewUUID()), workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute), nil)
	q.Add("first")
	q.Add("second")
	q.ShutDown()
	if n := q.Len(); n != 0 {
		t.Errorf("the queue has %d requests", n)
	}
	if request, shutdown := q.Get(); !shutdown {
		t.Errorf("the queue hands out %q", request)
	}
}

func TestQueueHasWorkqueueMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := string(uuid.NewUUID())
		q := newQueue(clock.RealClock{}, name, workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute), nil)
		defer q.ShutDown()

		q.Add("first")
		q.Add("second")
		q.Add("first") // is queued already
		take(t, q, "first")
		time.Sleep(25 * time.Second)
		synctest.Wait()
		expect(t, "while one request is in process and one is queued", name, map[string]float64{
			"workqueue_adds_total":                        2,
			"workqueue_depth":                             1,
			"workqueue_retries_total":                     0,
			"workqueue_queue_duration_seconds count":      1,
			"workqueue_queue_duration_seconds sum":        0,
			"workqueue_work_duration_seconds count":       0,
			"workqueue_work_duration_seconds sum":         0,
			"workqueue_unfinished_work_seconds":           20, // as of the last tick, one every 10 s
			"workqueue_longest_running_processor_seconds": 20,
		})

		q.AddRateLimited("first")
		q.Done("first")
		take(t, q, "second")
		q.Done("second")
		take(t, q, "first") // a second later
		q.Done("first")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		expect(t, "when all is done", name, map[string]float64{
			"workqueue_adds_total":                        3,
			"workqueue_depth":                             0,
			"workqueue_retries_total":                     1,
			"workqueue_queue_duration_seconds count":      3,
			"workqueue_queue_duration_seconds sum":        25,
			"workqueue_work_duration_seconds count":       3,
			"workqueue_work_duration_seconds sum":         25,
			"workqueue_unfinished_work_seconds":           0,
			"workqueue_longest_running_processor_seconds": 0,
		})
	})
}

func TestQueueHandsOutNoRequestAfterShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := string(uuid.NewUUID())
		q := newQueue(clock.RealClock{}, name, workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute), nil)
		for _, request := range []string{"first", "second", "third"} {
			q.Add(request)
		}
		take(t, q, "first")
		q.Add("first") // requeued when it is done
		q.ShutDown()
		q.Done("first")
		if request, shutdown := q.Get(); !shutdown {
			t.Errorf("%q is handed out", request)
		}
		if depth := metricsOf(t, name)["workqueue_depth"]; depth != 0 {
			t.Errorf("%v requests still count as queued", depth)
		}
	})
}

// take takes the next request from the queue.
func take(t *testing.T, q Queue[string], want string) {
	t.Helper()
	if got, shutdown := q.Get(); got != want || shutdown {
		t.Fatalf("%q is handed out, shut down: %v; want %q", got, shutdown, want)
	}
}

func expect(t *testing.T, when, queue string, want map[string]float64) {
	t.Helper()
	if got := metricsOf(t, queue); !maps.Equal(got, want) {
		t.Errorf("%s the metrics are %v; want %v", when, got, want)
	}
}

// metricsOf returns the metrics whose only label is the name of the queue.
func metricsOf(t *testing.T, queue string) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "workqueue_") {
			continue
		}
		for _, m := range f.Metric {
			if len(m.Label) != 1 || m.Label[0].GetName() != "name" || m.Label[0].GetValue() != queue {
				continue
			}
			switch {
			case m.Histogram != nil:
				got[f.GetName()+" count"] = float64(m.Histogram.GetSampleCount())
				got[f.GetName()+" sum"] = m.Histogram.GetSampleSum()
			case m.Counter != nil:
				got[f.GetName()] = m.Counter.GetValue()
			default:
				got[f.GetName()] = m.Gauge.GetValue()
			}
		}
	}
	return got
}
