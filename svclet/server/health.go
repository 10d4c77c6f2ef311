package server

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/klog/v2"
)

// check is a health check.
type check struct {
	name string
	ask  func() error
}

// addHealth adds /healthz and a path for each of its checks.
func (s *Server) addHealth(mux *http.ServeMux) {
	fine := func() error { return nil }
	checks := []check{{"ping", fine}, {"log", fine}, {"syncloop", s.syncLoop}}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { healthz(w, r, checks) })
	for _, c := range checks {
		mux.HandleFunc("GET /healthz/"+c.name, func(w http.ResponseWriter, _ *http.Request) {
			if err := c.ask(); err != nil {
				http.Error(w, "internal server error: "+err.Error(), http.StatusInternalServerError)
				return
			}
			plain(w, http.StatusOK, "ok")
		})
	}
}

func (s *Server) syncLoop() error {
	last := s.parts.SyncLoop.Progress()
	if !last.IsZero() && s.parts.Clock.Since(last) > s.o.SyncLoopTimeout {
		return errors.New("sync Loop took longer than expected")
	}
	return nil
}

// healthz answers "ok", or one line for each check if one fails or the client asks
// for them. The reason of a failure is only logged, because the port may be open
// to unauthenticated clients.
func healthz(w http.ResponseWriter, r *http.Request, checks []check) {
	excluded := r.URL.Query()["exclude"]
	var lines strings.Builder
	var failed []string
	for _, c := range checks {
		if slices.Contains(excluded, c.name) {
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.name)
			continue
		}
		if err := c.ask(); err != nil {
			klog.FromContext(r.Context()).Info("Healthz check failed", "check", c.name, "err", err)
			failed = append(failed, c.name)
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.name)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
	}
	_, verbose := r.URL.Query()["verbose"]
	switch {
	case len(failed) > 0:
		http.Error(w, lines.String()+"healthz check failed", http.StatusInternalServerError)
	case verbose:
		plain(w, http.StatusOK, lines.String()+"healthz check passed\n")
	default:
		plain(w, http.StatusOK, "ok")
	}
}
