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

// Bounds of termination messages (Kubernetes documentation, "Determine the
// Reason for Pod Failure"), in bytes and lines.
const (
	maxMessage    = 4 << 10
	maxPodMessage = 12 << 10
	maxLogMessage = 2 << 10
	maxLogLines   = 80
)

// reasonCannotRun is that of a container that has not even started; it has no
// log.
const reasonCannotRun = "ContainerCannotRun"

// endMessage is what a container that has ended leaves behind: the runtime's
// message, and its own, from its termination message file or, where its policy
// says so and it has failed, from the end of its log.
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

// fileMessage reads the termination message file through the mount that brought
// it into the container. It is not found if it is missing or empty; when it
// cannot be read, the message says why.
func fileMessage(mounts []*runtimeapi.Mount, inContainer string) (message string, found bool) {
	if inContainer == "" {
		return "", false
	}
	if !path.IsAbs(inContainer) {
		inContainer = "/" + inContainer
	}
	// Of mounts at the same path the last one is what the container sees, and
	// the agent's own comes after the pod's.
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

// readEnd reads the last bytes of a file. The file may be in a pod's hands: a
// symbolic link is not followed, and a pipe not waited for.
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

// logMessage is the end of a container's log.
func logMessage(ctx context.Context, name string) string {
	lines := int64(maxLogLines)
	end := &lastBytes{}
	if err := logs.ReadLogs(quiet(ctx), name, "", &logs.LogOptions{TailLines: &lines}, nil, end, end); err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return end.String()
}

// lastBytes keeps the last maxLogMessage bytes that are written to it.
type lastBytes struct{ buffer bytes.Buffer }

func (l *lastBytes) Write(p []byte) (int, error) {
	l.buffer.Write(p)
	if l.buffer.Len() > maxLogMessage {
		l.buffer.Next(l.buffer.Len() - maxLogMessage)
	}
	return len(p), nil
}

func (l *lastBytes) String() string { return l.buffer.String() }

// boundMessages bounds the messages of a pod by an equal share for each of its
// containers that have been made. Those that have not may make it smaller yet,
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
