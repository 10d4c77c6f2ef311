package stats

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"
)

// Options configure a provider.
type Options struct {
	// NodeName is the name of the Node object.
	NodeName string
	// RootDirectory is the agent's root directory: the node's file system is the one
	// of this directory.
	RootDirectory string
	// PodLogsDirectory is the directory of container logs, by default /var/log/pods.
	PodLogsDirectory string
	// SystemContainers are cgroups by their names in the summary: "pods", "kubelet",
	// "runtime", "misc". Cgroups are paths below the root of the hierarchy
	// ("/kubepods").
	SystemContainers map[string]string
	// Started is when the agent started: the start time of "kubelet".
	Started time.Time
	// Clock is the clock of samples and of the cache.
	Clock clock.Clock
	// Root is the directory of proc and sys, by default "/".
	Root string
}

// Runtime is the part of the container runtime's client that is used;
// criapi.RuntimeService implements it.
type Runtime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error)
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
}

// Images returns the disk usage of images.
type Images interface {
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Volumes returns the usage of a pod's volumes. It may be nil. When ctx is done it returns,
// at once, those that have been measured.
type Volumes func(ctx context.Context, uid types.UID) ([]statsapi.VolumeStats, error)

// fresh is how long a summary is cached, and window the time between the two
// samples of an idle provider. Samples older than longest are not used for current
// rates.
const (
	fresh   = time.Second
	window  = 200 * time.Millisecond
	longest = 2 * time.Minute
)

// runtimeTimeout is how long a summary waits for the runtime: evictions wait for it, and a
// runtime on a node without memory may not answer.
const runtimeTimeout = 10 * time.Second

// volumesTimeout is how long a summary waits for the volumes of all pods: other requests
// wait for the summary.
const volumesTimeout = time.Second

// Provider measures resource usage.
type Provider struct {
	o       Options
	runtime Runtime
	images  Images
	volumes Volumes
	machine machine
	// disks are the mount points of the runtime's images and containers, once they are known on this machine.
	disks atomic.Pointer[[2]string]

	mu      sync.Mutex // held during a measurement
	rates   rates
	sampled time.Time
	rated   bool      // the last sample had a previous one
	last    [2]answer // everything; CPU and memory only

	latest atomic.Pointer[statsapi.Summary] // of everything; nil before the first
}

type answer struct {
	summary *statsapi.Summary
	at      time.Time
	rates   bool // there was a previous sample
}

// New returns a provider.
func New(o Options, runtime Runtime, images Images, volumes Volumes) *Provider {
	if o.PodLogsDirectory == "" {
		o.PodLogsDirectory = "/var/log/pods"
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Root == "" {
		o.Root = "/"
	}
	return &Provider{o: o, runtime: runtime, images: images, volumes: volumes, machine: newMachine(o.Root), rates: rates{}}
}

// Summary returns all statistics, or only those of CPU and memory. The result is
// up to a second old and must not be modified.
func (p *Provider) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	return p.find(ctx, onlyCPUAndMemory, true)
}

// find is Summary. Without rates it does not wait for a second sample.
func (p *Provider) find(ctx context.Context, only, rates bool) (*statsapi.Summary, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := &p.last[0]
	if only {
		slot = &p.last[1]
	}
	if slot.summary != nil && p.o.Clock.Since(slot.at) < fresh && (slot.rates || !rates) {
		return slot.summary, nil
	}
	since := p.o.Clock.Since(p.sampled)
	sampled := since <= longest && (p.rated || since >= window)
	if !sampled && rates {
		if err := p.firstSample(ctx); err != nil {
			return nil, err
		}
		sampled = true
	}
	summary, err := p.summary(ctx, only)
	if err != nil {
		return nil, err
	}
	p.sampled, p.rated = p.o.Clock.Now(), sampled
	p.rates.forget(p.sampled.Add(-longest))
	*slot = answer{summary, p.sampled, sampled}
	if !only {
		p.latest.Store(summary)
	}
	return summary, nil
}

// firstSample takes a sample, and waits until a second one is meaningful.
func (p *Provider) firstSample(ctx context.Context) error {
	if _, err := p.summary(ctx, true); err != nil {
		return err
	}
	select {
	case <-p.o.Clock.After(window):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Provider) summary(ctx context.Context, only bool) (*statsapi.Summary, error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	node, err := p.node(ctx, only)
	if err != nil {
		return nil, err
	}
	pods, err := p.pods(ctx, only)
	if err != nil {
		return nil, fmt.Errorf("failed to list pod stats: %w", err)
	}
	return &statsapi.Summary{Node: *node, Pods: pods}, nil
}

// rates holds samples of CPU time counters.
type rates map[string]sample

type sample struct {
	at    time.Time
	total uint64 // nanoseconds
	rate  *uint64
}

// next returns the CPU time used since the previous sample of that name, in
// nanoseconds per second, or nil if there is none.
func (r rates) next(name string, at time.Time, total uint64) *uint64 {
	old, known := r[name]
	if known && !at.After(old.at) {
		return old.rate // the source has not measured again
	}
	s := sample{at: at, total: total}
	if known && total >= old.total {
		rate := uint64(float64(total-old.total) / at.Sub(old.at).Seconds())
		s.rate = &rate
	}
	r[name] = s
	return s.rate
}

// forget drops samples from before a time, which belong to containers that are
// gone.
func (r rates) forget(before time.Time) {
	for name, s := range r {
		if s.at.Before(before) {
			delete(r, name)
		}
	}
}
