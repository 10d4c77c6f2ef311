package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/server/stream"
)

// tokenSeconds is how long a runtime keeps the URL of a stream.
const tokenSeconds = 60

func (s *Server) streamOptions() stream.Options {
	return stream.Options{IdleTimeout: s.o.StreamingConnectionIdleTimeout, MaxDuration: maxConnection, Clock: s.parts.Clock}
}

// exec runs a command in a container, with streams.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	streams, ok := wantedStreams(w, r)
	if !ok {
		return
	}
	_, container, err := s.container(r)
	if err != nil {
		writeStreamError(w, err)
		return
	}
	if container.ID == "" {
		writeStreamError(w, fmt.Errorf("container not found (%q)", r.PathValue("container")))
		return
	}
	address, err := runtimeURL(s.parts.Runtime.Exec(r.Context(), &runtimeapi.ExecRequest{
		ContainerId: container.ID, Cmd: r.URL.Query()["command"], Tty: streams.TTY,
		Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr,
	}))
	if err != nil {
		writeStreamError(w, err)
		return
	}
	stream.Exec(w, r, address, *streams, s.streamOptions())
}

// attach attaches to the process of a container. Whether it has a terminal was
// decided when it was created.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	streams, ok := wantedStreams(w, r)
	if !ok {
		return
	}
	p, container, err := s.container(r)
	if err != nil {
		writeStreamError(w, err)
		return
	}
	_, spec := podspec.Find(&p.Spec, r.PathValue("container"))
	if container.ID == "" || spec == nil {
		writeStreamError(w, fmt.Errorf("container %s not found in pod %s", r.PathValue("container"), fullName(p)))
		return
	}
	address, err := runtimeURL(s.parts.Runtime.Attach(r.Context(), &runtimeapi.AttachRequest{
		ContainerId: container.ID, Tty: spec.TTY,
		Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr && !spec.TTY,
	}))
	if err != nil {
		writeStreamError(w, err)
		return
	}
	stream.Attach(w, r, address, *streams, spec.TTY, s.streamOptions())
}

// portForward forwards ports of a pod.
func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	if !upgrade(w, r) {
		return
	}
	ports, err := stream.ParsePorts(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p, observed, err := s.observed(r)
	if err != nil {
		writeStreamError(w, err)
		return
	}
	sandbox, ok := readySandbox(observed)
	if !ok {
		writeStreamError(w, fmt.Errorf("pod not found (%q)", fullName(p)))
		return
	}
	err = stream.PortForward(w, r, sandbox, func(ctx context.Context) (*url.URL, error) {
		return runtimeURL(s.parts.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandbox, Port: ports}))
	}, ports, s.streamOptions())
	if err != nil {
		writeStreamError(w, err)
	}
}

// run runs a command in a container and returns its output.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	_, container, err := s.container(r)
	if err == nil && container.ID == "" {
		err = fmt.Errorf("container not found (%q)", r.PathValue("container"))
	}
	if err != nil {
		writeStreamError(w, err)
		return
	}
	command := strings.Split(r.URL.Query().Get("cmd"), " ")
	stdout, stderr, code, err := s.parts.Runtime.ExecSync(r.Context(), container.ID, command, 0)
	if err == nil && code != 0 {
		err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(command, " "), code, stderr)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json") // which is wrong, but kubelet's behavior
	_, _ = w.Write(append(stdout, stderr...))          // the client may have disconnected
}

// wantedStreams answers requests without streams or without an upgrade.
func wantedStreams(w http.ResponseWriter, r *http.Request) (*stream.Streams, bool) {
	streams, err := stream.ParseStreams(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, false
	}
	return streams, upgrade(w, r)
}

func upgrade(w http.ResponseWriter, r *http.Request) bool {
	if !httpstream.IsUpgradeRequest(r) {
		http.Error(w, "Upgrade request required", http.StatusBadRequest)
		return false
	}
	return true
}

// Kubelet's two messages for objects that do not exist.
var (
	errNoPod    = errors.New("pod does not exist")
	errOtherPod = errors.New("pod not found")
)

// observed observes the pod in the request's path.
func (s *Server) observed(r *http.Request) (*corev1.Pod, pod.Observed, error) {
	p, ok := s.parts.Pods.Get(r.PathValue("namespace"), r.PathValue("pod"))
	if !ok {
		return nil, pod.Observed{}, errNoPod
	}
	if uid := types.UID(r.PathValue("uid")); uid != "" && s.parts.Pods.Translate(uid) != p.UID {
		return nil, pod.Observed{}, errOtherPod
	}
	observed, err := s.parts.Runtime.Pod(r.Context(), p.UID)
	return p, observed, err
}

// container returns the running container in the request's path; its ID is empty
// if none runs.
func (s *Server) container(r *http.Request) (*corev1.Pod, pod.Container, error) {
	p, observed, err := s.observed(r)
	if err != nil {
		return nil, pod.Container{}, err
	}
	c, _ := runningContainer(observed, r.PathValue("container"))
	return p, c, nil
}

func readySandbox(observed pod.Observed) (string, bool) {
	for _, sandbox := range observed.Sandboxes {
		if sandbox.Ready {
			return sandbox.ID, true
		}
	}
	return "", false
}

func runtimeURL(address string, err error) (*url.URL, error) {
	if err != nil {
		return nil, err
	}
	return stream.ParseRuntimeURL(address)
}

// writeStreamError answers a request for a stream that failed.
func writeStreamError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, errNoPod), errors.Is(err, errOtherPod), status.Code(err) == codes.NotFound:
		code = http.StatusNotFound
	case status.Code(err) == codes.ResourceExhausted:
		w.Header().Set("Retry-After", strconv.Itoa(tokenSeconds))
		code = http.StatusTooManyRequests
	}
	plain(w, code, err.Error())
}
