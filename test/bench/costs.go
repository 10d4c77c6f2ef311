package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// profiled is a system whose managers serve profiles, each at a port of its own.
type profiled struct {
	system
	urls []string
}

// costedManagers returns the systems of controllerManagers, with profiles.
func costedManagers(o options) ([]system, error) {
	systems, err := controllerManagers(o)
	for i := range systems {
		systems[i] = &profiled{system: systems[i]}
	}
	return systems, err
}

// Processes implements system.
func (p *profiled) Processes(dir string) ([]process, error) {
	processes, err := p.system.Processes(dir)
	if err != nil {
		return nil, err
	}
	p.urls = nil
	for i := range processes {
		at := slices.Index(processes[i].args, "--secure-port=0")
		if at < 0 {
			continue
		}
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		processes[i].args = append(slices.Clone(processes[i].args), "--authorization-always-allow-paths=/debug/pprof/*")
		processes[i].args[at] = "--secure-port=" + port
		p.urls = append(p.urls, "https://"+net.JoinHostPort("127.0.0.1", port))
	}
	return processes, nil
}

// sampledSeconds is how long each profile of the processor is.
const sampledSeconds = 5

// costs are what the controllers of a system have cost, by name.
type costs struct {
	processor map[string]time.Duration
	// heap is the largest of the sampled sizes, in bytes.
	heap map[string]int64
}

// measureCosts profiles the managers while they do the work of the other measures, and
// attributes processor time and live heap to the controllers.
func measureCosts(ctx context.Context, t *trial) error {
	p, ok := t.system.(*profiled)
	if !ok {
		return fmt.Errorf("%s serves no profiles", t.system.Name())
	}
	quiet := *t
	quiet.record = func(row, float64) {}
	sum := costs{processor: map[string]time.Duration{}, heap: map[string]int64{}}
	sampling, stop := context.WithCancel(ctx)
	ended := make(chan error, len(p.urls))
	results := make(chan sample)
	for _, url := range p.urls {
		go func() { ended <- sampleManager(sampling, url, results) }()
	}
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for s := range results {
			sum.add(s)
		}
	}()
	var errs []error
	for _, work := range []func(context.Context, *trial) error{
		measureRollout, measureStateful, measureDaemons, measureCronJobs, measureAutoscalers, measureClaims, measurePreemption, measureNamespace, measureCollection,
	} {
		if err := work(ctx, &quiet); err != nil {
			errs = append(errs, err)
			break // what it left would change what the others do
		}
	}
	stop()
	for range p.urls {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	close(results)
	<-collected
	for _, name := range slices.Sorted(maps.Keys(sum.processor)) {
		t.record(lower("cost of "+name, "processor", "s"), sum.processor[name].Seconds())
		t.record(lower("cost of "+name, "live heap, at most", "MB"), float64(sum.heap[name])/1e6)
	}
	return errors.Join(errs...)
}

// sample is a profile of the processor and one of the heap.
type sample struct{ processor, heap *profile.Profile }

// sampleManager takes profiles of a manager until the context ends.
func sampleManager(ctx context.Context, url string, results chan<- sample) error {
	c := newClient(url, &tls.Config{InsecureSkipVerify: true}) // the managers sign their certificates themselves
	defer closeAll([]*client{c})
	for {
		processor, err := fetchProfile(ctx, c, fmt.Sprintf("/debug/pprof/profile?seconds=%d", sampledSeconds))
		if err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "connection refused") {
			if err := wait(ctx, time.Second); err != nil { // it starts
				return err
			}
			continue
		}
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		heap, err := fetchProfile(ctx, c, "/debug/pprof/heap")
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case results <- sample{processor, heap}:
		}
	}
}

func fetchProfile(ctx context.Context, c *client, path string) (*profile.Profile, error) {
	body, err := c.open(ctx, request{method: http.MethodGet, path: path, accept: "*/*"})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	return profile.ParseData(content)
}

// add adds a sample to the costs. The last value of a sample is the time or, in a
// profile of the heap, what is in use.
func (c costs) add(s sample) {
	for _, p := range s.processor.Sample {
		c.processor[owner(functions(p))] += time.Duration(p.Value[len(p.Value)-1])
	}
	heap := map[string]int64{}
	for _, p := range s.heap.Sample {
		heap[owner(functions(p))] += p.Value[len(p.Value)-1]
	}
	for name, bytes := range heap {
		c.heap[name] = max(c.heap[name], bytes)
		c.processor[name] += 0 // so that each name has both
	}
}

// functions are the names of the functions of a sample, the innermost first.
func functions(s *profile.Sample) (names []string) {
	for _, location := range s.Location {
		for _, line := range location.Line {
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}

// noControllers are packages beside those of the controllers that are none themselves:
// what calls them is charged.
var noControllers = []string{
	"adoption", "controller", "discovery", "election", "expectations", "healthserver", "history", "index", "owned", "pods", // svc's
	"util", "framework", "controller_ref_manager", "controller_utils", // Kubernetes'
}

// renamed are svc's names of Kubernetes' packages, where they differ.
var renamed = map[string]string{
	"daemon": "daemonset", "podautoscaler": "horizontalpodautoscaler", "endpoint": "endpoints", "endpointslice": "endpoints", "endpointslicemirroring": "endpoints",
	"replication": "replicaset", "persistentvolume": "persistentvolumebinder", "expand": "persistentvolumeexpander", "ephemeral": "ephemeralvolume", "bootstrap": "bootstrapsigner",
}

// owner returns to which controller functions belong, the innermost first, or else
// which part of the program they are.
func owner(functions []string) string {
	part := "the rest"
	for _, f := range functions {
		if name := controllerOf(f); name != "" {
			return name
		}
		part = cmp.Or(partOf(f), part)
	}
	return part
}

// controllerOf returns the package of the controller that a function belongs to, or
// nothing.
func controllerOf(function string) string {
	switch {
	case strings.HasPrefix(function, "k8s.io/kubernetes/pkg/scheduler"):
		return "scheduler"
	case strings.HasPrefix(function, "k8s.io/endpointslice"):
		return "endpoints"
	}
	for _, prefix := range []string{"svc.dev/svc/controllers/", "k8s.io/kubernetes/pkg/controller/volume/", "k8s.io/kubernetes/pkg/controller/"} {
		if path, ok := strings.CutPrefix(function, prefix); ok {
			name := path[:strings.IndexAny(path+".", "/.")]
			if slices.Contains(noControllers, name) {
				return ""
			}
			return cmp.Or(renamed[name], name)
		}
	}
	return ""
}

// partOf returns a part of a program that serves all controllers, or nothing.
func partOf(function string) string {
	for _, p := range []struct{ prefix, name string }{
		{"runtime.gcBgMarkWorker", "Go's garbage collector"}, {"runtime.bgsweep", "Go's garbage collector"}, {"runtime.bgscavenge", "Go's garbage collector"},
		{"k8s.io/client-go/tools/events", "events"}, {"k8s.io/client-go/tools/record", "events"},
		{"k8s.io/client-go/tools/cache", "caches and watches"}, {"k8s.io/apimachinery/pkg/watch", "caches and watches"},
		{"net/http", "connections"}, {"golang.org/x/net/http2", "connections"},
	} {
		if strings.HasPrefix(function, p.prefix) {
			return p.name
		}
	}
	return ""
}
