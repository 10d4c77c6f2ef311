package metrics

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// Measuring asks etcd for a number per resource type: it is done at most every
// usageInterval, and takes at most usageTimeout.
const (
	usageInterval = 15 * time.Second
	usageTimeout  = 2 * time.Second
)

// Store measures what is stored in etcd.
type Store interface {
	// Objects returns the number of objects of each resource, or -1 if it is not
	// known.
	Objects(ctx context.Context) map[schema.GroupResource]int64
	// Sizes returns the size of the database of each etcd server, in bytes.
	Sizes(ctx context.Context) []int64
}

// Pool is a pool of addresses or ports that the server allocates from.
type Pool struct {
	// Allocator is "clusterip" or "nodeport", and Unit "ips" or "ports": they are
	// parts of the metrics' names.
	Allocator, Unit string
	// CIDR is the pool of addresses.
	CIDR string
	// Size is how many there are.
	Size float64
	// Allocated returns how many are allocated.
	Allocated func(ctx context.Context) (int, error)
}

// usage measures a store and pools.
type usage struct {
	store Store
	pools func() []Pool
	clock clock.PassiveClock

	mu       sync.Mutex
	measured time.Time
	objects  map[schema.GroupResource]int64
	sizes    []int64
	// allocated is the number of the members in use of each of known, or -1 if it is not
	// known.
	known     []Pool
	allocated []int
}

// measure updates the numbers that are older than usageInterval.
func (u *usage) measure() {
	if now := u.clock.Now(); u.measured.IsZero() || now.Sub(u.measured) >= usageInterval {
		ctx, cancel := context.WithTimeout(context.Background(), usageTimeout)
		defer cancel()
		u.objects, u.sizes, u.allocated = u.store.Objects(ctx), u.store.Sizes(ctx), nil
		u.known = nil
		if u.pools != nil {
			u.known = u.pools()
		}
		for _, p := range u.known {
			n, err := p.Allocated(ctx)
			if err != nil {
				n = -1
			}
			u.allocated = append(u.allocated, n)
		}
		u.measured = now
	}
}

// add adds the families of the measured numbers.
func (u *usage) add(families map[string]*dto.MetricFamily) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.measure()
	const help = " Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1."
	newer := gauge("apiserver_resource_objects", "[ALPHA]"+help)
	older := gauge("apiserver_storage_objects", "[STABLE] (Deprecated since 1.34.0)"+help)
	resources := slices.SortedFunc(maps.Keys(u.objects), func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	for _, r := range resources {
		n := float64(u.objects[r])
		newer.Metric = append(newer.Metric, gaugeOf(n, "group", r.Group, "resource", r.Resource))
		older.Metric = append(older.Metric, gaugeOf(n, "resource", r.String()))
	}
	sizes := gauge("apiserver_storage_size_bytes", "[STABLE] Size of the storage database file physically allocated in bytes.")
	for i, size := range u.sizes {
		sizes.Metric = append(sizes.Metric, gaugeOf(float64(size), "storage_cluster_id", fmt.Sprintf("etcd-%d", i)))
	}
	for _, f := range append(u.allocators(), newer, older, sizes) {
		if known := families[f.GetName()]; known != nil {
			known.Metric = append(known.Metric, f.Metric...)
			continue
		}
		families[f.GetName()] = f
	}
}

// allocators returns two families per pool.
func (u *usage) allocators() []*dto.MetricFamily {
	var families []*dto.MetricFamily
	for i, p := range u.known {
		if u.allocated[i] < 0 {
			continue
		}
		var labels []string
		if p.CIDR != "" {
			labels = []string{"cidr", p.CIDR}
		}
		name := "kube_apiserver_" + p.Allocator + "_allocator_"
		families = append(families,
			gauge(name+"allocated_"+p.Unit, "[ALPHA] Gauge measuring the number of allocated "+p.Unit+" for Services", gaugeOf(float64(u.allocated[i]), labels...)),
			gauge(name+"available_"+p.Unit, "[ALPHA] Gauge measuring the number of available "+p.Unit+" for Services", gaugeOf(p.Size-float64(u.allocated[i]), labels...)))
	}
	return families
}

func gauge(name, help string, metrics ...*dto.Metric) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum(), Metric: metrics}
}

// gaugeOf returns a metric with labels of alternating names, which are sorted, and
// values.
func gaugeOf(value float64, namesAndValues ...string) *dto.Metric {
	m := &dto.Metric{Gauge: &dto.Gauge{Value: &value}}
	for pair := range slices.Chunk(namesAndValues, 2) {
		m.Label = append(m.Label, &dto.LabelPair{Name: ptr.To(pair[0]), Value: ptr.To(pair[1])})
	}
	return m
}
