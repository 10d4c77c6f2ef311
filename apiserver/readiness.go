package apiserver

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/inprocess"
)

// reportInterval is how often a server that does not become ready logs why. A start
// takes a fraction of a second.
const reportInterval = 10 * time.Second

// waitReady returns when /readyz passes, or an error when ctx is done before.
func (s *Server) waitReady(ctx context.Context) error {
	r := readiness{handler: inprocess.Chain(s.handler), clock: s.clock}
	return r.wait(ctx)
}

// readiness asks a server's handler whether it is ready.
type readiness struct {
	handler http.Handler
	clock   clock.Clock
}

// wait returns when /readyz passes, or an error when ctx is done before. At the
// interval it logs the checks that fail. The first polls follow each other
// quickly.
func (r readiness) wait(ctx context.Context) error {
	reported := r.clock.Now()
	delay := wait.Backoff{Duration: 2 * time.Millisecond, Factor: 1.2, Steps: 24, Cap: 100 * time.Millisecond}.DelayFunc()
	return delay.Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		status, body, err := r.get(ctx, "/readyz")
		if err != nil || status == http.StatusOK {
			return true, err // get fails only when ctx is done
		}
		if r.clock.Since(reported) < reportInterval {
			return false, nil
		}
		reported = r.clock.Now()
		return false, r.report(ctx, body)
	})
}

// report logs the failed checks of an answer of /readyz, each with the reason that
// only its own endpoint gives.
func (r readiness) report(ctx context.Context, body string) error {
	for _, name := range failedChecks(body) {
		_, reason, err := r.get(ctx, "/readyz/"+name)
		if err != nil {
			return err
		}
		reason = strings.TrimPrefix(strings.TrimSpace(reason), "internal server error: ")
		klog.FromContext(ctx).Info("API server is not ready yet", "check", name, "reason", reason)
	}
	return nil
}

// failedChecks returns the names of the checks that fail in an answer of /readyz.
func failedChecks(body string) []string {
	var names []string
	for line := range strings.Lines(body) {
		if failed, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ := strings.Cut(failed, " ")
			names = append(names, name)
		}
	}
	return names
}

// get returns the handler's answer, or an error when ctx is done.
func (r readiness) get(ctx context.Context, path string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://in-process"+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := inprocess.Transport{Handler: r.handler}.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(content), err
}
