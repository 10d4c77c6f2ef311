package authorization

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	authzconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"
	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/klog/v2"
)

// reloadInterval is how often the file is read if changes of it cannot be watched.
const reloadInterval = time.Minute

// Reload follows the file --authorization-config until ctx is done. A file that is not
// valid is logged, and the authorizers stay as they are. Without a file it returns at
// once. serverID is the label of the metrics.
func (a *Authorizers) Reload(ctx context.Context, serverID string) {
	if a.config.File == "" {
		return
	}
	metrics.RegisterMetrics()
	metrics.RecordAuthorizationConfigLastConfigInfo(serverID, a.content)
	logger := klog.FromContext(ctx).WithValues("file", a.config.File)
	var refused string
	filesystem.WatchUntil(ctx, reloadInterval, a.config.File, func() {
		data, err := os.ReadFile(a.config.File)
		if err == nil && (string(data) == a.content || string(data) == refused) {
			return
		}
		if err == nil {
			refused = string(data)
			err = a.reload()
		}
		if err != nil {
			logger.Error(err, "Failed to reload authorization configuration, the previous one stays in force")
			metrics.RecordAuthorizationConfigAutomaticReloadFailure(serverID)
			return
		}
		logger.Info("Reloaded authorization configuration")
		metrics.RecordAuthorizationConfigAutomaticReloadSuccess(serverID, a.content)
	}, func(err error) {
		logger.Error(err, "Failed to watch authorization configuration, will retry")
	})
}

func (a *Authorizers) reload() error {
	listed, content, err := readFile(a.config.File)
	if err != nil {
		return err
	}
	// As in Kubernetes, a file that lacks a mode does not take it away while the server runs.
	var missing []string
	for mode := range a.members {
		if !slices.ContainsFunc(listed, func(l authzconfig.AuthorizerConfiguration) bool { return l.Type == mode }) {
			missing = append(missing, string(mode))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("--authorization-config: %s: types %s cannot be removed while the server runs, restart it", a.config.File, strings.Join(missing, ", "))
	}
	all, err := a.unite(listed, content)
	if err != nil {
		return err
	}
	a.content = content
	a.current.Store(all)
	return nil
}
