package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/pod"
)

// checkpoint writes the state of a running container, with its memory, to a file in the
// directory of checkpoints (KEP-2008). The answers are kubelet's.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	p, ok := s.parts.Pods.Get(namespace, name)
	if !ok {
		plain(w, http.StatusNotFound, "pod does not exist")
		return
	}
	if _, c := podspec.Find(&p.Spec, container); c == nil {
		plain(w, http.StatusNotFound, fmt.Sprintf("container %v does not exist", container))
		return
	}
	var timeout time.Duration
	if given := r.URL.Query()["timeout"]; len(given) > 0 {
		seconds, err := strconv.ParseInt(given[len(given)-1], 10, 32)
		if err != nil || seconds < 0 {
			plain(w, http.StatusNotFound, "cannot parse value of timeout parameter")
			return
		}
		timeout = pod.Seconds(seconds)
	}
	failed := func(why any) {
		plain(w, http.StatusInternalServerError, fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)", namespace, name, container, why))
	}
	observed, err := s.parts.Runtime.Pod(r.Context(), p.UID)
	if err != nil {
		failed(err)
		return
	}
	running, found := runningContainer(observed, container)
	if !found {
		failed(fmt.Sprintf("container %v not found", container))
		return
	}
	location := filepath.Join(s.o.CheckpointDirectory, fmt.Sprintf("checkpoint-%s-%s-%s.tar", fullName(p), container, s.parts.Clock.Now().Format(time.RFC3339)))
	if err := s.parts.Runtime.Checkpoint(r.Context(), running.ID, location, timeout); err != nil {
		failed(err)
		return
	}
	writeJSON(w, r, map[string][]string{"items": {location}})
}
