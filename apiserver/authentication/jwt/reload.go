package jwt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/options/authenticationconfig/metrics"
	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/klog/v2"

	"svc.dev/svc/internal/configlines"
)

const (
	// resync is how often the file is read without an event: a file system on a
	// network may report none.
	resync = time.Minute
	// patience is how long a reload waits for the issuers of a new configuration.
	patience = time.Minute
	// probing is the interval between two checks of the issuers.
	probing = 100 * time.Millisecond
	// draining is how long the issuers that a reload replaced still work, for
	// the requests that use them.
	draining = time.Minute
)

// Run reads the file again when it changes, until ctx is done. A configuration that
// is invalid, or whose issuers do not answer, is logged, and the last good one stays
// in force.
func (a *Authenticator) Run(ctx context.Context) {
	if a.config.File == "" {
		return
	}
	logger := klog.FromContext(ctx).WithValues("flag", "--authentication-config", "file", a.config.File)
	metrics.RegisterMetrics()
	metrics.RecordAuthenticationConfigLastConfigInfo("", string(a.config.Content))
	seen := a.config.Content
	filesystem.WatchUntil(ctx, resync, a.config.File, func() { seen = a.sync(ctx, logger, seen) }, func(err error) {
		logger.Error(err, "Failed to watch the authentication configuration, will retry")
	})
}

// sync reads the file, and uses it if it differs from the content that was seen last.
// It returns the content that has been dealt with.
func (a *Authenticator) sync(ctx context.Context, logger klog.Logger, seen []byte) []byte {
	content, err := os.ReadFile(a.config.File)
	if err == nil && bytes.Equal(content, seen) {
		return seen
	}
	retry := err != nil
	if err == nil {
		retry, err = a.use(ctx, content)
	}
	if err != nil {
		metrics.RecordAuthenticationConfigAutomaticReloadFailure("")
		logger.Error(err, "Failed to reload the authentication configuration, the last good one stays in force")
		if retry {
			return seen
		}
		return content
	}
	metrics.RecordAuthenticationConfigAutomaticReloadSuccess("", string(content))
	logger.Info("Reloaded the authentication configuration")
	return content
}

// use replaces the configuration. With an error, retry reports whether the same
// content may succeed later.
func (a *Authenticator) use(ctx context.Context, content []byte) (retry bool, err error) {
	config, err := Parse(content)
	if err != nil {
		return false, err
	}
	if !reflect.DeepEqual(config.Anonymous, a.config.Initial.Anonymous) {
		return false, errors.New("anonymous: it cannot change while the server runs; restart the server")
	}
	if err := validate(config, a.compiler, a.config.OwnIssuers); err != nil {
		return false, configlines.Explain(content, err)
	}
	next, err := a.issuersOf(config)
	if err != nil {
		return false, err
	}
	if err := wait.PollUntilContextTimeout(ctx, probing, patience, true, func(context.Context) (bool, error) {
		return next.healthy() == nil, nil
	}); err != nil {
		next.end()
		return true, fmt.Errorf("an issuer does not answer: %w", errors.Join(next.healthy(), err))
	}
	previous := a.current.Swap(next)
	drained := a.config.Clock.After(draining)
	go func() {
		defer previous.end()
		select {
		case <-drained:
		case <-a.lifetime.Done():
		}
	}()
	return false, nil
}
