package probe

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podspec"
)

// Executor runs a command in a container and waits for its end. A timeout of
// zero is none. An error with gRPC's code DeadlineExceeded, or one that wraps
// context.DeadlineExceeded or cri-client's ErrCommandTimedOut, says that the
// command took too long.
type Executor interface {
	ExecSync(ctx context.Context, containerID string, command []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
}

// Recorder takes the events of probes and hooks.
type Recorder interface {
	Event(*corev1.Pod, pod.Event)
}

// Options of a [Manager].
type Options struct {
	Executor Executor
	Recorder Recorder
	// Result is called when a probe has reached a threshold: at first, and then
	// whenever it finds otherwise than it last told. Calls about one probe come
	// one after the other; no lock is held, and one that blocks delays only its
	// own probe. A call that is under way when its probe is stopped is not
	// waited for.
	Result func(types.UID, pod.ProbeResult)
	// Version is the release that probes name in their User-Agent
	// ("kube-probe/1.36").
	Version string
	// Clock is the time; the real one by default.
	Clock clock.Clock
	// Random is in [0, 1); math/rand's by default.
	Random func() float64
}

// Manager runs probes and hooks.
type Manager struct {
	options   Options
	transport *http.Transport
	metrics   *metrics
	// started is when the agent did.
	started time.Time
	// wake says that the first of due has changed.
	wake chan struct{}
	// flying are the probes under way.
	flying sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]*podProbes
	due  schedule
}

// New returns a manager that runs probes once [Manager.Run] does. Hooks run
// without it.
func New(o Options) *Manager {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return &Manager{
		options:   o,
		transport: newTransport(),
		metrics:   newMetrics(),
		started:   o.Clock.Now(),
		wake:      make(chan struct{}, 1),
		pods:      map[types.UID]*podProbes{},
	}
}

// podProbes are the probes of one pod. Its fields are guarded by the manager's
// lock; what pod points to is not written.
type podProbes struct {
	pod    *corev1.Pod
	ip     string
	probes map[probeKey]*running
}

type probeKey struct {
	containerID string
	kind        pod.ProbeKind
}

// running is a probe that is to run. It is either in the schedule (index >= 0),
// under way (cancel is set), or on hold for good because nothing that it could
// find would matter any more.
type running struct {
	uid       types.UID
	pod       *podProbes
	probe     pod.Probe
	container *corev1.Container
	counter   counter
	series    series
	due       time.Time
	index     int
	cancel    context.CancelFunc
	stopped   bool
}

// Sync makes these the probes of a pod that run: it starts those that are new,
// keeps those that run already, with their counts, and stops all others. A
// container whose startup probe is among them, and has not succeeded, gets no
// other probe until it has and Sync is called again. The IP is that of the
// pod, on the host's network that of the node.
func (m *Manager) Sync(uid types.UID, p *corev1.Pod, podIP string, probes []pod.Probe) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.pods[uid]
	if of == nil {
		if len(probes) == 0 {
			return
		}
		of = &podProbes{probes: make(map[probeKey]*running, len(probes))}
		m.pods[uid] = of
	}
	of.pod, of.ip = p, podIP

	wanted := make(map[probeKey]pod.Probe, len(probes))
	for _, each := range probes {
		wanted[probeKey{each.ContainerID, each.Kind}] = each
	}
	for key := range wanted {
		if waitsForStartup(key, wanted, of.probes) {
			delete(wanted, key)
		}
	}
	for key, r := range of.probes {
		if _, ok := wanted[key]; !ok {
			m.stop(r)
			delete(of.probes, key)
		}
	}
	for key, each := range wanted {
		if r := of.probes[key]; r != nil {
			r.probe = each
			continue
		}
		m.start(uid, of, key, each)
	}
}

// waitsForStartup says whether a probe is not to run because the startup probe
// of its container has not succeeded yet.
func waitsForStartup(key probeKey, wanted map[probeKey]pod.Probe, running map[probeKey]*running) bool {
	if key.kind == pod.Startup {
		return false
	}
	startup := probeKey{key.containerID, pod.Startup}
	if _, ok := wanted[startup]; !ok {
		return false
	}
	r := running[startup]
	return r == nil || !r.counter.told || !r.counter.value
}

// Remove stops all probes of a pod and forgets their metrics.
func (m *Manager) Remove(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.pods[uid]
	if of == nil {
		return
	}
	for _, r := range of.probes {
		m.stop(r)
	}
	delete(m.pods, uid)
	m.metrics.forget(of.pod)
}

// start schedules a new probe: its first run is when the initial delay since
// the container's start has passed. Containers that an earlier run of the
// agent left behind are not all probed at once, but each somewhere within its
// period.
func (m *Manager) start(uid types.UID, of *podProbes, key probeKey, p pod.Probe) {
	now := m.options.Clock.Now()
	_, container := podspec.Find(&of.pod.Spec, p.Container)
	r := &running{uid: uid, pod: of, probe: p, container: container, due: now}
	if r.container == nil || p.Spec == nil {
		klog.ErrorS(nil, "Ignoring a probe of a container that is not in the pod", "pod", klog.KObj(of.pod), "container", p.Container)
		return
	}
	if period := periodOf(p.Spec); p.Since.Before(m.started) && period > now.Sub(m.started) {
		r.due = now.Add(time.Duration(m.options.Random() * float64(period)))
	}
	// Of a start in the future it is the clock that is wrong. What is due is
	// counted from now, by which it does not matter if the clock jumps later.
	ran := max(now.Sub(p.Since), 0)
	if delay := seconds(p.Spec.InitialDelaySeconds, 0) - ran; delay > r.due.Sub(now) {
		r.due = now.Add(delay)
	}
	r.series = m.metrics.series(of.pod, p.Container, p.Kind)
	of.probes[key] = r
	m.schedule(r)
}

func (m *Manager) stop(r *running) {
	r.stopped = true
	if r.cancel != nil {
		r.cancel()
	} else if r.index >= 0 {
		heap.Remove(&m.due, r.index)
	}
}

func (m *Manager) schedule(r *running) {
	heap.Push(&m.due, r)
	if r.index == 0 {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
}

// Run runs the probes, until the context ends and those under way have ended.
func (m *Manager) Run(ctx context.Context) {
	defer m.flying.Wait()
	for {
		wait, any := m.launch(ctx)
		var fires <-chan time.Time
		stop := func() bool { return false }
		if any {
			timer := m.options.Clock.NewTimer(wait)
			fires, stop = timer.C(), timer.Stop
		}
		select {
		case <-ctx.Done():
			stop()
			return
		case <-m.wake:
			stop()
		case <-fires:
		}
	}
}

// launch starts each probe that is due, and says how long it is until the next
// one is, if there is any.
func (m *Manager) launch(ctx context.Context) (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.due) > 0 {
		r := m.due[0]
		if wait := r.due.Sub(m.options.Clock.Now()); wait > 0 {
			return wait, true
		}
		heap.Pop(&m.due)
		var flight context.Context
		flight, r.cancel = context.WithCancel(ctx)
		m.flying.Go(func() { m.run(flight, r) })
	}
	return 0, false
}

// run runs a probe once and schedules its next run.
func (m *Manager) run(ctx context.Context, r *running) {
	m.mu.Lock()
	target := target{pod: r.pod.pod, container: r.container, containerID: r.probe.ContainerID, ip: r.pod.ip}
	spec, kind := r.probe.Spec, r.probe.Kind
	m.mu.Unlock()

	began := m.options.Clock.Now()
	found := m.probe(ctx, target, spec)
	took := m.options.Clock.Since(began)
	if ctx.Err() != nil {
		// It was cancelled: what it found may be only that.
		found = outcome{verdict: unknown, err: ctx.Err()}
	} else {
		m.record(target, kind, found)
	}
	if tell, success := m.count(r, found, took); tell {
		m.options.Result(r.uid, pod.ProbeResult{Kind: kind, ContainerID: target.containerID, Success: success, Message: found.output})
	}
	m.again(r)
}

// count takes what a probe has found into account, and says whether that is to
// be told.
func (m *Manager) count(r *running, found outcome, took time.Duration) (tell, success bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.stopped || found.err != nil {
		return false, false
	}
	success = found.succeeded()
	r.series.observe(success, took)
	return r.counter.add(success, r.probe.Spec), success
}

// again schedules the next run of a probe: a period after this one was due, or
// at once when it took longer than that. A startup probe that has told
// anything, and a liveness probe that has told of a failure, are on hold: there
// will be another container, or none, when they are wanted again.
func (m *Manager) again(r *running) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.cancel()
	r.cancel = nil
	settled := r.probe.Kind == pod.Startup || r.probe.Kind == pod.Liveness && !r.counter.value
	if r.stopped || r.counter.told && settled {
		return
	}
	r.due = r.due.Add(periodOf(r.probe.Spec))
	if now := m.options.Clock.Now(); r.due.Before(now) {
		r.due = now
	}
	m.schedule(r)
}
