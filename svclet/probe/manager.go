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

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/pod"
)

// Executor runs a command in a container and waits for its end. A timeout of zero
// means no timeout. A timeout is reported by an error with gRPC's code
// DeadlineExceeded, or one that wraps context.DeadlineExceeded or cri-client's
// ErrCommandTimedOut.
type Executor interface {
	ExecSync(ctx context.Context, containerID string, command []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
}

// Recorder records the events of probes and hooks.
type Recorder interface {
	Event(*corev1.Pod, pod.Event)
}

// Options configure a [Manager].
type Options struct {
	Executor Executor
	Recorder Recorder
	// Result is called when a probe reaches a threshold for the first time, and when
	// its result changes. Calls for one probe are sequential; no lock is held, and a
	// call that blocks delays only its own probe. A call in flight is not waited for
	// when its probe is stopped.
	Result func(types.UID, pod.ProbeResult)
	// Version is the release in the User-Agent of probes ("kube-probe/1.36").
	Version string
	// Clock is the system clock by default.
	Clock clock.Clock
	// Random returns a number in [0, 1); math/rand's by default.
	Random func() float64
}

// Manager runs probes and hooks.
type Manager struct {
	options   Options
	transport *http.Transport
	// http2 is the transport of probes with protocol HTTP2.
	http2   *http.Transport
	metrics *metrics
	// started is when the agent started.
	started time.Time
	// wake signals that the first element of due has changed.
	wake chan struct{}
	// inFlight counts the probes in flight.
	inFlight sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]*podProbes
	due  schedule
}

// New returns a manager, which runs probes during [Manager.Run]. Hooks do not need
// Run.
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
		http2:     newHTTP2Transport(),
		metrics:   newMetrics(),
		started:   o.Clock.Now(),
		wake:      make(chan struct{}, 1),
		pods:      map[types.UID]*podProbes{},
	}
}

// podProbes are the probes of one pod. Its fields are guarded by the manager's
// lock; what pod points to is not modified.
type podProbes struct {
	pod    *corev1.Pod
	ip     string
	probes map[probeKey]*running
}

type probeKey struct {
	containerID string
	kind        pod.ProbeKind
}

// running is an active probe. It is in the schedule (index >= 0), in flight
// (cancel is set), or on hold because its result can no longer matter.
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

// Sync sets the probes of a pod: it starts new ones, keeps existing ones with
// their counts, and stops all others. While the startup probe of a container is
// among them and has not succeeded, no other probe of the container runs until
// Sync is called again. podIP is the pod's IP, on the host network the node's.
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

// waitsForStartup reports whether a probe must not run because its container's
// startup probe has not succeeded.
func waitsForStartup(key probeKey, wanted map[probeKey]pod.Probe, running map[probeKey]*running) bool {
	if key.kind == pod.Startup {
		return false
	}
	startup := probeKey{key.containerID, pod.Startup}
	if _, ok := wanted[startup]; !ok {
		return false
	}
	r := running[startup]
	return r == nil || !r.counter.reported || !r.counter.value
}

// Remove stops all probes of a pod and deletes their metrics.
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

// start schedules a new probe: its first run is after the initial delay since the
// container's start. The first probes of containers from before the agent's
// restart are spread over their periods.
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
	// A start time in the future means that the clock was changed. The delay is
	// relative to now, so that later clock changes do not matter.
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

// Run runs the probes until ctx is done, and waits for those in flight.
func (m *Manager) Run(ctx context.Context) {
	defer m.inFlight.Wait()
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

// launch starts the probes that are due, and returns the time until the next one,
// if there is any.
func (m *Manager) launch(ctx context.Context) (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.due) > 0 {
		r := m.due[0]
		if wait := r.due.Sub(m.options.Clock.Now()); wait > 0 {
			return wait, true
		}
		heap.Pop(&m.due)
		var runCtx context.Context
		runCtx, r.cancel = context.WithCancel(ctx)
		m.inFlight.Go(func() { m.run(runCtx, r) })
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
		// The run was cancelled, which may be the only reason of its result.
		found = outcome{verdict: unknown, err: ctx.Err()}
	} else {
		m.record(target, kind, found)
	}
	if reached, success := m.count(r, found, took); reached {
		m.options.Result(r.uid, pod.ProbeResult{Kind: kind, ContainerID: target.containerID, Success: success, Message: found.output})
	}
	m.reschedule(r)
}

// count updates the counts, and reports whether a threshold is reached, so that the
// result has to be reported.
func (m *Manager) count(r *running, found outcome, took time.Duration) (reached, success bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.stopped || found.err != nil {
		return false, false
	}
	success = found.succeeded()
	r.series.observe(success, took)
	return r.counter.add(success, r.probe.Spec), success
}

// reschedule schedules the next run of a probe: a period after this one was due, or at
// once if it took longer. A startup probe that was reported, and a liveness probe
// whose failure was reported, are on hold: the container is going to be replaced.
func (m *Manager) reschedule(r *running) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.cancel()
	r.cancel = nil
	settled := r.probe.Kind == pod.Startup || r.probe.Kind == pod.Liveness && !r.counter.value
	if r.stopped || r.counter.reported && settled {
		return
	}
	r.due = r.due.Add(periodOf(r.probe.Spec))
	if now := m.options.Clock.Now(); r.due.Before(now) {
		r.due = now
	}
	m.schedule(r)
}
