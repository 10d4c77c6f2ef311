package agent

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/oom"
)

// oomReports are where processes that the kernel has killed for lack of memory are reported.
type oomReports struct {
	// event creates an event of the Node, for each that is killed because the machine has no
	// memory left. The events are kubelet's.
	event func(kind, reason, message string)
	// counter counts those of containers, whose cgroups have the names of driver.
	counter *oom.Counter
	driver  cgroup.Driver
}

// watch returns a task that reports processes which the kernel kills.
func (r oomReports) watch(open func() (*os.File, error)) func(context.Context) {
	return func(ctx context.Context) {
		logger := klog.FromContext(ctx)
		log, err := open()
		if err != nil {
			logger.Info("Failed to open the kernel's log, there are no events and no metric about processes killed for lack of memory", "err", err)
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = log.Close() }) // which ends the watch
		r.counter.Watch(true)
		err = oom.Watch(log, r.report)
		r.counter.Watch(false)
		if stop() {
			_ = log.Close()
			logger.Info("Failed to read the kernel's log, there are no more events and no metric about processes killed for lack of memory", "err", err)
		}
	}
}

func (r oomReports) report(k oom.Kill) {
	if k.Machine {
		r.event(corev1.EventTypeWarning, "SystemOOM", k.Message)
	}
	if pod, id, found := r.driver.Container(k.Cgroup); found {
		r.counter.Add(pod, id)
	}
}
