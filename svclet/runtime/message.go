package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/logs"

	"svc.dev/svc/svclet/pod"
)

// Limits of termination messages (Kubernetes documentation, "Determine the Reason
// for Pod Failure"), in bytes and lines.
const (
	maxMessage    = 4 << 10
	maxPodMessage = 12 << 10
	maxLogMessage = 2 << 10
	maxLogLines   = 80
)

// reasonCannotRun is the reason of a container that could not be started; it has
// no log.
const reasonCannotRun = "ContainerCannotRun"

// endMessage returns the termination message of an exited container: the runtime's
// message, and that of its termination message file or, with policy
// FallbackToLogsOnError after a failure, the end of its log.
func endMessage(ctx context.Context, status *runtimeapi.ContainerStatus) string {
	record := ReadContainerRecord(status.GetLabels(), status.GetAnnotations())
	message, found := fileMessage(status.GetMounts(), record.TerminationMessagePath)
	if !found && record.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError &&
		status.GetExitCode() != 0 && status.GetReason() != reasonCannotRun {
		message = logMessage(ctx, status.GetLogPath())
	}
	switch {
	case message == "":
		return status.GetMessage()
	case status.GetMessage() == "":
		return message
	default:
		return status.GetMessage() + ": " + message
	}
}

// fileMessage reads the termination message file through its mount. found is false
// if the file is missing or empty; if it cannot be read, the message is the
// reason.
func fileMessage(mounts []*runtimeapi.Mount, inContainer string) (message string, found bool) {
	if inContainer == "" {
		return "", false
	}
	if !path.IsAbs(inContainer) {
		inContainer = "/" + inContainer
	}
	// Of several mounts at one path the container sees the last, and the agent adds
	// its own after the pod's.
	onHost := ""
	for _, mount := range mounts {
		if mount.GetContainerPath() == inContainer {
			onHost = mount.GetHostPath()
		}
	}
	if onHost == "" {
		return "", false
	}
	data, err := readEnd(onHost, maxMessage)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", false
	case err != nil:
		return fmt.Sprintf("Error on reading termination log %s: %v", onHost, err), true
	default:
		return string(data), len(data) > 0
	}
}

// readEnd reads the last bytes of a file. The pod may control the file, so
// symbolic links are not followed and pipes do not block.
func readEnd(name string, limit int64) (data []byte, err error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if start := info.Size() - limit; start > 0 {
		if _, err := file.Seek(start, io.SeekStart); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(file, limit))
}

// logMessage returns the end of a container's log.
func logMessage(ctx context.Context, name string) string {
	lines := int64(maxLogLines)
	end := &lastBytes{}
	if err := logs.ReadLogs(quiet(ctx), name, "", &logs.LogOptions{TailLines: &lines}, nil, end, end); err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return end.String()
}

// lastBytes is a writer that keeps the last maxLogMessage bytes.
type lastBytes struct{ buffer bytes.Buffer }

func (l *lastBytes) Write(p []byte) (int, error) {
	l.buffer.Write(p)
	if l.buffer.Len() > maxLogMessage {
		l.buffer.Next(l.buffer.Len() - maxLogMessage)
	}
	return len(p), nil
}

func (l *lastBytes) String() string { return l.buffer.String() }

// boundMessages truncates the messages of a pod to an equal share for each of its
// created containers. Containers that are not created yet reduce the share further
// when a status is written.
func boundMessages(containers []pod.Container) {
	names := map[string]bool{}
	for _, container := range containers {
		names[container.Name] = true
	}
	for i := range containers {
		if share := maxPodMessage / len(names); len(containers[i].Message) > share {
			containers[i].Message = containers[i].Message[:share]
		}
	}
}
