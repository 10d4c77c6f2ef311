package scheduler

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scheduler reads pods, nodes and what else kinds lists. It alone writes
// spec.nodeName (by binding) of pods that name it, and their condition
// PodScheduled as long as it is false.
type scheduler struct {
	name string
	// client reads its own writes; plain does not, but needs no watch of what it
	// writes, and live reads past the cache.
	client  client.Client
	plain   client.Client
	live    client.Reader
	clock   clock.WithTicker
	scheme  *runtime.Scheme
	watches []watch
}

type watch struct {
	informer cache.Informer
	changed  func(c *core, before, after any)
}

// NeedLeaderElection lets it run only in the manager that holds the lease.
func (s *scheduler) NeedLeaderElection() bool { return true }

// Start schedules until ctx is done, and returns when all has ended.
func (s *scheduler) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &loop{
		core:     newCore(s.name, s.clock.Now, rand.IntN),
		clock:    s.clock,
		inbox:    make(chan func(), inboxSize),
		binder:   &binder{client: s.client, plain: s.plain, live: s.live},
		reporter: newReporter(s.client, s.clock),
		running:  &running,
	}
	busy := func() bool { return l.binding.Load() > 0 }
	l.announcer = newAnnouncer(s.plain, s.clock, s.scheme, s.name, busy)
	stop, err := l.watch(ctx, s.watches)
	defer stop()
	if err != nil {
		return err
	}
	running.Go(func() { l.reporter.run(ctx) })
	running.Go(func() { l.announcer.run(ctx) })
	l.run(ctx)
	return nil
}

// loop is the one goroutine that works with the core, and the others that
// bring it what happens and do what it decides.
type loop struct {
	core  *core
	clock clock.WithTicker
	// inbox brings what is to be done with the core, in order.
	inbox     chan func()
	binder    *binder
	reporter  *reporter
	announcer *announcer
	running   *sync.WaitGroup

	// ready tells that the core knows all that there is, and binding counts the
	// pods that are being bound; others may read it.
	ready   bool
	binding atomic.Int32
}

const (
	inboxSize = 1024
	// maxBinding is how many pods are bound at the same time: enough for the API
	// server to write many of them to disk at once. No more are decided on
	// meanwhile, so that an important pod need not wait behind them.
	maxBinding = 64
)

// post does something with the core soon, unless ctx ends first.
func (l *loop) post(ctx context.Context, do func()) {
	select {
	case l.inbox <- do:
	case <-ctx.Done():
	}
}

// watch brings the changes of the cluster to the core, and makes it ready when
// it has got all that there is by now. stop ends that.
func (l *loop) watch(ctx context.Context, watches []watch) (stop func(), err error) {
	var registered []toolscache.ResourceEventHandlerRegistration
	stop = func() {
		for i, r := range registered {
			// The informer has ended if it does not know the handler any more.
			_ = watches[i].informer.RemoveEventHandler(r)
		}
	}
	for _, w := range watches {
		post := func(before, after any) {
			l.post(ctx, func() { w.changed(l.core, before, after) })
		}
		r, err := w.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(after any) { post(nil, after) },
			UpdateFunc: post,
			DeleteFunc: func(before any) {
				if unseen, ok := before.(toolscache.DeletedFinalStateUnknown); ok {
					before = unseen.Obj
				}
				post(before, nil)
			},
		})
		if err != nil {
			return stop, err
		}
		registered = append(registered, r)
	}
	l.running.Go(func() {
		for _, r := range registered {
			select {
			case <-r.HasSyncedChecker().Done():
			case <-ctx.Done():
			}
		}
		l.post(ctx, func() { l.ready = true })
	})
	return stop, nil
}

// run works until ctx is done. What has happened comes before what is to be
// decided.
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
		var pause <-chan time.Time
		if l.ready && l.binding.Load() < maxBinding {
			if step, ok := l.core.next(); ok {
				l.do(ctx, step)
				continue
			}
			if next, ok := l.core.queue.Next(); ok {
				timer.Reset(next.Sub(l.clock.Now()))
				pause = timer.C()
			}
		}
		select {
		case do := <-l.inbox:
			do()
		case <-pause:
		case <-ctx.Done():
		}
	}
}

// do has a step done, and waits for nothing.
func (l *loop) do(ctx context.Context, s step) {
	if s.assumed == nil {
		l.refuse(ctx, s.pod, corev1.PodReasonUnschedulable, s.message)
		return
	}
	l.binding.Add(1)
	l.running.Go(func() {
		if len(s.claims) > 0 {
			err := l.binder.bindClaims(ctx, s.pod, s.node(), s.claims)
			l.post(ctx, func() { l.claimed(ctx, s, err) })
			return
		}
		ok, err := l.binder.bind(ctx, s.pod, s.node())
		l.post(ctx, func() { l.bound(ctx, s, ok, err) })
	})
}

// claimed takes note of what has become of a pod's claims. If all went well,
// the watches will tell.
func (l *loop) claimed(ctx context.Context, s step, err error) {
	l.binding.Add(-1)
	if err != nil {
		l.failed(ctx, s, err)
	}
}

// bound takes note of how binding has ended.
func (l *loop) bound(ctx context.Context, s step, ok bool, err error) {
	l.binding.Add(-1)
	switch {
	case ok:
		klog.FromContext(ctx).V(4).Info("The pod is bound", "pod", klog.KObj(s.pod), "node", s.node())
		l.announcer.announce(s.pod, corev1.EventTypeNormal, "Scheduled",
			"Successfully assigned "+s.pod.Namespace+"/"+s.pod.Name+" to "+s.node())
	case err != nil:
		l.failed(ctx, s, err)
	default:
		l.core.failed(s)
	}
}

// failed has a step tried again, and tells why.
func (l *loop) failed(ctx context.Context, s step, err error) {
	klog.FromContext(ctx).Error(err, "The pod could not be bound and is tried again", "pod", klog.KObj(s.pod), "node", s.node())
	l.core.failed(s)
	l.refuse(ctx, s.pod, corev1.PodReasonSchedulerError, "binding rejected: "+err.Error())
}

// refuse tells why a pod has no node.
func (l *loop) refuse(ctx context.Context, pod *corev1.Pod, reason, message string) {
	klog.FromContext(ctx).V(4).Info("There is no node for the pod", "pod", klog.KObj(pod), "reason", message)
	l.reporter.report(pod, reason, message)
	l.announcer.announce(pod, corev1.EventTypeWarning, "FailedScheduling", message)
}

// podKey names one pod, not another of the same name.
type podKey struct {
	client.ObjectKey
	uid types.UID
}

func keyOf(pod *corev1.Pod) podKey { return podKey{client.ObjectKeyFromObject(pod), pod.UID} }
