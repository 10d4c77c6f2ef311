package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/pod"
)

// containerLogs serves the log of a container.
func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	namespace, podName, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	o, err := parseLogOptions(r.URL.Query())
	if err != nil {
		http.Error(w, `{"message": "Unable to decode query."}`, http.StatusBadRequest)
		return
	}
	if !validLogOptions(o) {
		http.Error(w, `{"message": "Invalid request."}`, http.StatusUnprocessableEntity)
		return
	}
	p, ok := s.parts.Pods.Get(namespace, podName)
	if !ok {
		http.Error(w, fmt.Sprintf("pod %q does not exist", podName), http.StatusNotFound)
		return
	}
	if _, c := podspec.Find(&p.Spec, container); c == nil {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", container, podName), http.StatusNotFound)
		return
	}
	id, err := LoggedContainer(p, container, o.Previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, bare, found := strings.Cut(id, "://")
	if !found {
		bare = id
	}
	status, err := s.parts.Runtime.ContainerStatus(r.Context(), bare)
	if err != nil || status == nil {
		klog.FromContext(r.Context()).V(4).Info("Failed to get container status", "containerID", id, "err", err)
		http.Error(w, "unable to retrieve container logs for "+id, http.StatusBadRequest)
		return
	}
	s.readLogs(w, r, status.LogPath, bare, o)
}

// readLogs writes a log file to the client, and follows it if requested.
func (s *Server) readLogs(w http.ResponseWriter, r *http.Request, path, id string, o *corev1.PodLogOptions) {
	out := &flushing{w: w, to: http.NewResponseController(w)}
	var stdout, stderr io.Writer
	if o.Stream == nil || *o.Stream != corev1.LogStreamStderr {
		stdout = out
	}
	if o.Stream == nil || *o.Stream != corev1.LogStreamStdout {
		stderr = out
	}
	if o.Follow {
		out.flush() // the client learns that it is connected before the first line
	}
	err := logs.ReadLogs(r.Context(), path, id, readerOptions(o, s.parts.Clock.Now()), statusOnly{runtime: s.parts.Runtime}, stdout, stderr)
	switch {
	case err == nil:
	case !out.written:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		klog.FromContext(r.Context()).V(2).Info("Failed to write container log to the client", "containerID", id, "err", err)
		_, _ = io.WriteString(out, err.Error()+"\n") // too late for a status
	}
}

func readerOptions(o *corev1.PodLogOptions, now time.Time) *logs.LogOptions {
	l := &logs.LogOptions{TailLines: o.TailLines, LimitBytes: o.LimitBytes, Follow: o.Follow, Timestamp: o.Timestamps}
	if o.SinceSeconds != nil {
		l.Since = now.Add(-pod.Seconds(*o.SinceSeconds))
	}
	if o.SinceTime != nil && o.SinceTime.After(l.Since) {
		l.Since = o.SinceTime.Time
	}
	return l
}

// parseLogOptions reads v1 PodLogOptions from a query. "tail" is an old name of
// "tailLines", and its value "all" means no limit.
func parseLogOptions(query url.Values) (*corev1.PodLogOptions, error) {
	if tail := query.Get("tail"); tail == "all" {
		query.Del("tailLines")
	} else if tail != "" {
		query.Set("tailLines", tail)
	}
	o := &corev1.PodLogOptions{}
	for name, field := range map[string]*bool{"follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps} {
		values := query[name]
		if err := runtime.Convert_Slice_string_To_bool(&values, field, nil); err != nil {
			return nil, err
		}
	}
	for name, field := range map[string]**int64{"sinceSeconds": &o.SinceSeconds, "tailLines": &o.TailLines, "limitBytes": &o.LimitBytes} {
		values, given := query[name]
		if !given {
			continue
		}
		if err := runtime.Convert_Slice_string_To_Pointer_int64(&values, field, nil); err != nil {
			return nil, err
		}
	}
	if values, given := query["sinceTime"]; given {
		if err := metav1.Convert_Slice_string_To_Pointer_v1_Time(&values, &o.SinceTime, nil); err != nil {
			return nil, err
		}
	}
	if query.Has("stream") {
		o.Stream = ptr.To(query.Get("stream"))
	}
	return o, nil
}

// validLogOptions reports whether the options pass the API's validation of pods/log.
func validLogOptions(o *corev1.PodLogOptions) bool {
	switch {
	case o.TailLines != nil && *o.TailLines < 0,
		o.LimitBytes != nil && *o.LimitBytes < 1,
		o.SinceSeconds != nil && o.SinceTime != nil,
		o.SinceSeconds != nil && *o.SinceSeconds < 1:
		return false
	}
	if o.Stream == nil {
		return true
	}
	switch *o.Stream {
	case corev1.LogStreamAll:
		return true
	case corev1.LogStreamStdout, corev1.LogStreamStderr:
		return o.TailLines == nil
	}
	return false
}

// LoggedContainer returns the ID, with its scheme, of the container whose log is
// requested, according to the pod's status.
func LoggedContainer(p *corev1.Pod, name string, previous bool) (string, error) {
	status := containerStatus(&p.Status, name)
	if status == nil {
		return "", fmt.Errorf("container %q in pod %q is not available", name, p.Name)
	}
	state, last := status.State, status.LastTerminationState.Terminated
	lastID := ""
	if last != nil {
		lastID = last.ContainerID
	}
	switch {
	case previous && lastID == "":
		return "", fmt.Errorf("previous terminated container %q in pod %q not found", name, p.Name)
	case previous:
		return lastID, nil
	case state.Running != nil:
		return status.ContainerID, nil
	case state.Terminated != nil && state.Terminated.ContainerID != "":
		return state.Terminated.ContainerID, nil
	case lastID != "": // of the next attempt, which has not started
		return lastID, nil
	case state.Terminated != nil || last != nil:
		return "", fmt.Errorf("container %q in pod %q is terminated", name, p.Name)
	case state.Waiting != nil:
		return "", fmt.Errorf("container %q in pod %q is waiting to start: %s", name, p.Name, waitingFor(state.Waiting.Reason))
	}
	return "", fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", name, p.Name)
}

func waitingFor(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	}
	return reason
}

func containerStatus(s *corev1.PodStatus, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// flushing flushes each piece of a log at once.
type flushing struct {
	w       http.ResponseWriter
	to      *http.ResponseController
	written bool
}

func (f *flushing) Write(p []byte) (int, error) {
	f.written = true
	n, err := f.w.Write(p)
	if err == nil {
		err = f.to.Flush()
	}
	return n, err
}

func (f *flushing) flush() {
	f.written = true
	_ = f.to.Flush() // an error shows at the first line
}

// statusOnly implements the one request that the log reader makes to the runtime:
// whether the container still runs.
type statusOnly struct {
	criapi.RuntimeService
	runtime Runtime
}

// ContainerStatus requests the status. A container that was removed has exited, so
// its log is complete; this is not an error.
func (s statusOnly) ContainerStatus(ctx context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	found, err := s.runtime.ContainerStatus(ctx, id)
	switch {
	case status.Code(err) == codes.NotFound:
		found = &runtimeapi.ContainerStatus{Id: id, State: runtimeapi.ContainerState_CONTAINER_EXITED}
	case err != nil:
		return nil, err
	case found == nil:
		return nil, errors.New("the container runtime gives no status")
	}
	return &runtimeapi.ContainerStatusResponse{Status: found}, nil
}
