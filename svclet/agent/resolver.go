package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/container"
)

// checkResolver returns the task that records, once, an event about the node if its pods
// cannot have all of its resolver configuration.
func checkResolver(base common, event func(kind, reason, message string)) tasks {
	path := ptr.Deref(base.Configuration.ResolverConfig, "")
	if path == "" {
		return tasks{}
	}
	return tasks{parts: []func(context.Context){func(context.Context) {
		if problem := container.ResolvConfProblem(path, clusterDomain(base)); problem != "" {
			event(corev1.EventTypeWarning, "CheckLimitsForResolvConf", problem)
		}
	}}}
}
