package scheduler

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/pods"
	"svc.dev/svc/controllers/scheduler/configfile"
	"svc.dev/svc/controllers/scheduler/decision"
)

// scheduler reads pods, nodes and the other types of kinds. It alone writes
// spec.nodeName (by binding) of pods with one of its names, and while they have none
// their condition PodScheduled, status.nominatedNodeName and
// status.extendedResourceClaimStatus, whose claim it creates and deletes. It deletes the
// victims of preemption, and writes their condition DisruptionTarget before. With the gate
// GenericWorkload, it reads PodGroups and alone writes their condition PodGroupInitiallyScheduled.
//
// It is not a reconciler with a work queue: it takes pods by priority, a decision
// concerns all pods and nodes, and a pod must start to wait for an event in the same
// step in which it is found unschedulable, so that no event is lost in between.
// Package queue owns that order, and only the goroutine of the loop uses it.
type scheduler struct {
	config *configfile.Config
	// client waits until the cache has its writes; plain does not, and so needs no
	// watch of what it writes; live reads from the API server.
	client  client.Client
	plain   client.Client
	live    client.Reader
	clock   clock.WithTicker
	scheme  *runtime.Scheme
	watches []watch
	// conditions and groups are run by the manager; groups is nil if pods are scheduled
	// without regard to their groups.
	conditions *conditionReconciler
	groups     *groupReconciler
	// expects nominates pods to their nodes while what they need there is being prepared.
	expects bool
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the manager
// with the lease runs the scheduler.
func (s *scheduler) NeedLeaderElection() bool { return true }

// Start schedules until ctx is done, and returns when its goroutines have ended.
func (s *scheduler) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &loop{
		core:       newCore(s.config, s.clock.Now, rand.IntN),
		clock:      s.clock,
		inbox:      make(chan func(), inboxSize),
		binder:     &binder{client: s.client, plain: s.plain, live: s.live, extenders: s.config.Extenders},
		preemptor:  &preemptor{client: s.plain, now: s.clock.Now},
		conditions: s.conditions,
		groups:     s.groups,
		expects:    s.expects,
		metrics:    newMetrics(),
		running:    &running,
	}
	if s.groups != nil {
		l.core.considerGroups()
		l.metrics.groups = newGroupMetrics()
	}
	var extenders []decision.Extender
	for _, e := range s.config.Extenders {
		extenders = append(extenders, e.During(ctx))
	}
	l.core.snapshot.SetExtenders(extenders...)
	l.core.snapshot.During(ctx)
	l.core.queue.Entered = l.metrics.entered
	busy := func() bool { return l.binding.Load() > 0 }
	l.events = newEventRecorder(s.plain, s.clock, s.scheme, busy)
	stop, err := l.watch(ctx, s.watches)
	defer stop()
	if err != nil {
		return err
	}
	running.Go(func() { l.events.run(ctx) })
	l.run(ctx)
	return nil
}

// loop is the goroutine that owns the core, with those that deliver events to it
// and execute its steps.
type loop struct {
	core  *core
	clock clock.WithTicker
	// inbox are functions to call with the core, in order.
	inbox      chan func()
	binder     *binder
	preemptor  *preemptor
	conditions *conditionReconciler
	groups     *groupReconciler
	events     *eventRecorder
	metrics    *schedulerMetrics
	running    *sync.WaitGroup
	expects    bool

	// ready is set when the core has the initial lists of all watches. binding is
	// the number of pods that are being bound; other goroutines read it.
	ready   bool
	binding atomic.Int32
}

const (
	inboxSize = 1024
	// maxBinding is the number of pods that are bound at the same time: enough for
	// the API server to batch their writes to disk. No more pods are scheduled
	// meanwhile, so that a pod of high priority need not wait behind them.
	maxBinding = 64
)

// post enqueues a function to call with the core, unless ctx ends first.
func (l *loop) post(ctx context.Context, do func()) {
	select {
	case l.inbox <- do:
	case <-ctx.Done():
	}
}

// run schedules until ctx is done. It handles all pending events before each
// decision.
func (l *loop) run(ctx context.Context) {
	timer := l.clock.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case do := <-l.inbox:
			do()
			continue
		default:
		}
		for _, r := range l.core.scheduled {
			l.groups.enqueue(r)
		}
		l.core.scheduled = nil
		var pause <-chan time.Time
		if l.ready && l.binding.Load() < maxBinding {
			start := l.clock.Now()
			if step, ok := l.core.next(); ok {
				l.metrics.algorithm.Observe(l.clock.Since(start).Seconds())
				l.execute(ctx, step, start)
				l.metrics.measure(l.core, int(l.binding.Load()))
				continue
			}
			if next, ok := l.core.queue.Next(); ok {
				timer.Reset(next.Sub(l.clock.Now()))
				pause = timer.C()
			}
		}
		l.metrics.measure(l.core, int(l.binding.Load()))
		select {
		case do := <-l.inbox:
			do()
		case <-pause:
		case <-ctx.Done():
		}
	}
}

// execute starts a step that was decided from the time start on. It does not block.
func (l *loop) execute(ctx context.Context, s step, start time.Time) {
	if s.group != nil {
		l.metrics.groups.attempted(s.group, l.clock.Since(start))
		l.groups.enqueue(s.group)
	}
	if s.err != nil {
		l.metrics.attempted(s.pod, failure, l.clock.Since(start))
		klog.FromContext(ctx).Error(s.err, "Failed to schedule pod, will retry", "pod", klog.KObj(s.pod))
		l.reject(ctx, s.pod, corev1.PodReasonSchedulerError, s.err.Error())
		l.release(ctx, s)
		return
	}
	if s.assumed == nil {
		l.metrics.attempted(s.pod, unschedulable, l.clock.Since(start))
		if s.preemption.Node != "" || s.preemption.Message != "" {
			l.metrics.preemptions.Inc()
		}
		l.reject(ctx, s.pod, corev1.PodReasonUnschedulable, s.message)
		if s.preemption.Node != "" {
			l.preempt(ctx, s)
		}
		l.release(ctx, s)
		return
	}
	if s.waits && len(s.devices) > 0 {
		l.events.enqueue(s.pod, s.pod.Spec.SchedulerName, corev1.EventTypeNormal, "BindingConditionsPending",
			"waiting for binding conditions for device on node "+s.node())
	}
	l.binding.Add(1)
	l.core.writes(s)
	l.running.Go(func() {
		if l.expects {
			l.binder.expect(ctx, s)
		}
		if len(s.claims) > 0 {
			err := l.binder.bindClaims(ctx, s.pod, s.node(), s.claims)
			l.post(ctx, func() { l.claimed(ctx, s, start, err) })
			return
		}
		err := l.binder.bindDevices(ctx, s.pod, s.devices, func(claim *resourcev1.ResourceClaim) {
			l.post(ctx, func() { l.core.snapshot.DevicesWritten(claim.Namespace, claim.Name, claim.ResourceVersion) })
		})
		if err == nil {
			err = l.binder.nameExtendedClaim(ctx, s.pod, s.extended)
		}
		if err != nil {
			if pods.NamespaceTerminates(err) {
				err = nil // so is the pod
			}
			l.post(ctx, func() { l.bound(ctx, s, start, false, err) })
			return
		}
		if s.waits {
			l.post(ctx, func() { l.claimed(ctx, s, start, nil) })
			return
		}
		ok, err := l.binder.bind(ctx, s.pod, s.node())
		end := l.clock.Now()
		if ok {
			l.metrics.attempted(s.pod, scheduled, end.Sub(start))
			l.metrics.bound(s.attempts, end.Sub(s.first))
		}
		l.post(ctx, func() { l.bound(ctx, s, start, ok, err) })
	})
}

// claimed handles the result of binding a pod's claims. After success, the events
// of the claims retry the pod.
func (l *loop) claimed(ctx context.Context, s step, start time.Time, err error) {
	l.binding.Add(-1)
	l.core.wrote(s)
	switch {
	case apierrors.IsConflict(err): // another client has just written the claim
		klog.FromContext(ctx).V(4).Info("Retrying after a conflict", "pod", klog.KObj(s.pod), "reason", err.Error())
		l.core.failed(s)
	case err != nil:
		l.failed(ctx, s, start, err)
	}
}

// bound handles the result of binding a pod.
func (l *loop) bound(ctx context.Context, s step, start time.Time, ok bool, err error) {
	l.binding.Add(-1)
	l.core.wrote(s)
	switch {
	case ok:
		klog.FromContext(ctx).V(4).Info("Bound pod to node", "pod", klog.KObj(s.pod), "node", s.node())
		l.events.enqueue(s.pod, s.pod.Spec.SchedulerName, corev1.EventTypeNormal, "Scheduled",
			"Successfully assigned "+s.pod.Namespace+"/"+s.pod.Name+" to "+s.node())
	case err != nil:
		l.failed(ctx, s, start, err)
	default:
		l.core.failed(s)
	}
}

// failed retries a step and reports the error.
func (l *loop) failed(ctx context.Context, s step, start time.Time, err error) {
	l.metrics.attempted(s.pod, failure, l.clock.Since(start))
	klog.FromContext(ctx).Error(err, "Failed to bind pod, will retry", "pod", klog.KObj(s.pod), "node", s.node())
	l.core.failed(s)
	l.reject(ctx, s.pod, corev1.PodReasonSchedulerError, "binding rejected: "+err.Error())
}

// reject records in the pod's status and in an event why the pod has no node.
func (l *loop) reject(ctx context.Context, pod *corev1.Pod, why, message string) {
	klog.FromContext(ctx).V(4).Info("Pod is unschedulable", "pod", klog.KObj(pod), "reason", message)
	l.conditions.enqueue(pod, reason{why, message, l.core.snapshot.Nominated(pod.UID)})
	l.events.enqueue(pod, pod.Spec.SchedulerName, corev1.EventTypeWarning, "FailedScheduling", message)
}
