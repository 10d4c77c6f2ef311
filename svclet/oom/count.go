package oom

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// Container is a container of a pod of the node, whether it runs or not. ID is the runtime's.
type Container struct {
	Pod                      types.UID
	Namespace, PodName, Name string
	ID                       string
}

// Counter counts the processes of containers that were killed. It is a Prometheus collector.
// A restart of a container does not reset its count, which lasts as long as its pod.
type Counter struct {
	containers func() []Container
	// watching is whether the kernel's log is read: without it nothing is known.
	watching atomic.Bool

	mu sync.Mutex
	// counts are those of containers by their names, and unknown those by their IDs of
	// containers that have not been observed yet.
	counts, unknown map[types.UID]map[string]int
}

// NewCounter returns a counter. containers returns those of all pods of the node.
func NewCounter(containers func() []Container) *Counter {
	return &Counter{containers: containers, counts: map[types.UID]map[string]int{}, unknown: map[types.UID]map[string]int{}}
}

// Watch sets whether the kernel's log is read. The metric is left out while it is not.
func (c *Counter) Watch(watching bool) { c.watching.Store(watching) }

// Add counts a process of a container, whose ID is the runtime's.
func (c *Counter) Add(pod types.UID, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(c.unknown, pod, id, 1)
	c.assign(c.containers())
}

func add(counts map[types.UID]map[string]int, pod types.UID, key string, n int) {
	if counts[pod] == nil {
		counts[pod] = map[string]int{}
	}
	counts[pod][key] += n
}

// assign moves the counts of containers that are known by now. The caller holds mu.
func (c *Counter) assign(all []Container) {
	for _, each := range all {
		if n, found := c.unknown[each.Pod][each.ID]; found {
			add(c.counts, each.Pod, each.Name, n)
			delete(c.unknown[each.Pod], each.ID)
		}
	}
}

var killed = prometheus.NewDesc("container_oom_events_total", "Count of out of memory events observed for the container", []string{"container", "pod", "namespace"}, nil)

// Describe implements prometheus.Collector.
func (c *Counter) Describe(ch chan<- *prometheus.Desc) { ch <- killed }

// Collect implements prometheus.Collector. The counts of pods that are gone disappear.
func (c *Counter) Collect(ch chan<- prometheus.Metric) {
	if !c.watching.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.containers()
	c.assign(all)
	type labels struct{ container, pod, namespace string }
	present, seen, sums := map[types.UID]bool{}, map[types.UID]map[string]int{}, map[labels]int{}
	for _, each := range all {
		present[each.Pod] = true
		if _, instance := seen[each.Pod][each.Name]; instance {
			continue // another instance of it
		}
		add(seen, each.Pod, each.Name, 0)
		// A pod that ends and its successor may have the same name.
		sums[labels{each.Name, each.PodName, each.Namespace}] += c.counts[each.Pod][each.Name]
	}
	for l, n := range sums {
		ch <- prometheus.MustNewConstMetric(killed, prometheus.CounterValue, float64(n), l.container, l.pod, l.namespace)
	}
	for _, counts := range []map[types.UID]map[string]int{c.counts, c.unknown} {
		for pod := range counts {
			if !present[pod] {
				delete(counts, pod)
			}
		}
	}
}
