package agent

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/nodeconfig"
)

// skewRetry is the pause before the API server is asked again for its version.
const skewRetry = 10 * time.Second

// checkSkew returns the task that logs, once, whether the agent's release fits that of
// its API server.
func checkSkew(base common, conn connections) tasks {
	if conn.clients == nil {
		return tasks{}
	}
	return tasks{parts: []func(context.Context){func(ctx context.Context) {
		logger := klog.FromContext(ctx)
		for {
			var server version.Info
			body, err := conn.core().Get().AbsPath("/version").Do(ctx).Raw()
			if err == nil {
				err = json.Unmarshal(body, &server)
			}
			if err == nil {
				if problem := nodeconfig.Skew(base.Version, server.GitVersion); problem != "" {
					logger.Info("Version skew with the API server is not supported; --version=vX.Y.Z sets the release that the agent reports", "problem", problem)
				} else {
					logger.V(2).Info("Checked version skew", "agent", base.Version, "server", server.GitVersion)
				}
				return
			}
			logger.V(4).Info("Failed to read the version of the API server, will retry", "err", err)
			select {
			case <-ctx.Done():
				return
			case <-base.Clock.After(skewRetry):
			}
		}
	}}}
}
