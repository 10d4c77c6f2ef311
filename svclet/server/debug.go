package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/klog/v2"
)

// configz serves the configuration in force.
func (s *Server) configz(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, r, map[string]any{"kubeletconfig": s.parts.Configz()})
}

// maxForm bounds the form of a request for the stats summary, in bytes.
const maxForm = 4 << 10

// summary serves the stats summary of the node and its pods.
func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	// On the read-only port any client may send a body.
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, fmt.Sprintf("Internal Error: parse form failed: %v", err), http.StatusInternalServerError)
		return
	}
	only := r.Form["only_cpu_and_memory"]
	summary, err := s.parts.Stats.Summary(r.Context(), len(only) == 1 && only[0] == "true")
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Failed to serve stats summary", "request", "/stats/summary")
		http.Error(w, fmt.Sprintf("Internal Error: %v", err), http.StatusInternalServerError)
		return
	}
	writeJSON(w, r, summary)
}

// setVerbosity sets the log verbosity.
func (s *Server) setVerbosity(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64))
	if err == nil {
		err = s.parts.SetVerbosity(strings.TrimSpace(string(body)))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	plain(w, http.StatusOK, fmt.Sprintf("successfully set klog.logging.verbosity to %s", strings.TrimSpace(string(body))))
}
