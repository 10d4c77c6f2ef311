package agent

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/oom"
)

// reportSystemOOM returns a task that creates an event of the Node for each process that the
// kernel kills because the machine has no memory left. The events are kubelet's.
func reportSystemOOM(open func() (*os.File, error), event func(kind, reason, message string)) func(context.Context) {
	return func(ctx context.Context) {
		logger := klog.FromContext(ctx)
		log, err := open()
		if err != nil {
			logger.Info("Failed to open the kernel's log, there are no events about processes killed for lack of memory", "err", err)
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = log.Close() }) // which ends the watch
		err = oom.Watch(log, func(message string) { event(corev1.EventTypeWarning, "SystemOOM", message) })
		if stop() {
			_ = log.Close()
			logger.Info("Failed to read the kernel's log, there are no more events about processes killed for lack of memory", "err", err)
		}
	}
}
