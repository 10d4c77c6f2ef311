package stats

import (
	"context"
	"fmt"
	"sync"
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
	// RootDirectory is the agent's: the node's file system is the one on which
	// it lies.
	RootDirectory string
	// PodLogsDirectory is where containers' logs are, by default
	// /var/log/pods.
	PodLogsDirectory string
	// SystemContainers are cgroups, by what the summary calls them: "pods",
	// "kubelet", "runtime", "misc". Names are paths below the root of the
	// cgroup hierarchy ("/kubepods").
	SystemContainers map[string]string
	// Started is when the agent started: the start time of "kubelet".
	Started time.Time
	// Clock tells the time.
	Clock clock.Clock
	// Root is where /proc and /sys are, by default "/".
	Root string
}

// Runtime is what is needed of the container runtime; criapi.RuntimeService
// has it.
type Runtime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error)
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
}

// Images tells how much images take up.
type Images interface {
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Volumes returns what the volumes of a pod take up. It may be nil.
type Volumes func(ctx context.Context, uid types.UID) ([]statsapi.VolumeStats, error)

// fresh is how long an answer is given again, and window how far apart the two
// samples of an idle provider are. Older samples than longest tell nothing
// about the present.
const (
	fresh   = time.Second
	window  = 200 * time.Millisecond
	longest = 2 * time.Minute
)

// Provider tells what is used.
type Provider struct {
	o       Options
	runtime Runtime
	images  Images
	volumes Volumes
	machine machine

	mu      sync.Mutex // held while an answer is found
	rates   rates
	sampled time.Time
	rated   bool      // that sample had an earlier one
	last    [2]answer // everything; processors and memory alone
}

type answer struct {
	summary *statsapi.Summary
	at      time.Time
	rates   bool // an earlier sample was there
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

// Summary returns everything that is known, or processors and memory alone. It
// may be up to a second old, and is not to be changed.
func (p *Provider) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	return p.find(ctx, onlyCPUAndMemory, true)
}

// find is Summary. Who wants counters alone need not wait for a second sample,
// which rates take.
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
	return summary, nil
}

// firstSample takes a sample, and waits until a second one says something.
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

// rates remembers samples of counters of processor time.
type rates map[string]sample

type sample struct {
	at    time.Time
	total uint64 // nanoseconds
	rate  *uint64
}

// next returns how many nanoseconds of processor time a second have been used
// since the previous sample of that name, and nil if there is none yet.
func (r rates) next(name string, at time.Time, total uint64) *uint64 {
	old, known := r[name]
	if known && !at.After(old.at) {
		return old.rate // a source that has not measured anew
	}
	s := sample{at: at, total: total}
	if known && total >= old.total {
		rate := uint64(float64(total-old.total) / at.Sub(old.at).Seconds())
		s.rate = &rate
	}
	r[name] = s
	return s.rate
}

// forget drops samples from before a time: those of containers that are gone.
func (r rates) forget(before time.Time) {
	for name, s := range r {
		if s.at.Before(before) {
			delete(r, name)
		}
	}
}
