package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/pod"
)

const messagePath = "/dev/termination-log"

// leftover returns the status of an exited container with a message file, created
// by file unless it is nil, and a log of the given lines.
type leftover struct {
	file   func(path string) error
	lines  int
	policy corev1.TerminationMessagePolicy
	edit   func(*runtimeapi.ContainerStatus)
}

func (l leftover) status(t *testing.T) *runtimeapi.ContainerStatus {
	t.Helper()
	dir := t.TempDir()
	file, log := filepath.Join(dir, "message"), filepath.Join(dir, "0.log")
	if l.file != nil {
		if err := l.file(file); err != nil {
			t.Fatal(err)
		}
	}
	var lines strings.Builder
	for i := range l.lines {
		fmt.Fprintf(&lines, "2026-01-01T00:00:00.000000000Z stdout F line %d\n", i)
	}
	if err := os.WriteFile(log, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	status := &runtimeapi.ContainerStatus{
		ExitCode:    1,
		Mounts:      []*runtimeapi.Mount{{ContainerPath: "/other", HostPath: "/"}, {ContainerPath: messagePath, HostPath: file}},
		LogPath:     log,
		Annotations: map[string]string{TerminationMessagePathAnnotation: messagePath, TerminationMessagePolicyAnnotation: string(l.policy)},
	}
	if l.edit != nil {
		l.edit(status)
	}
	return status
}

func write(content string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(content), 0o600) }
}

func TestTerminationMessages(t *testing.T) {
	const fallback = corev1.TerminationMessageFallbackToLogsOnError
	link := func(path string) error { return os.Symlink("/etc/passwd", path) }
	tests := []struct {
		name string
		leftover
		want string
	}{
		{"the file's content", leftover{file: write("bye"), lines: 3, policy: fallback}, "bye"},
		{"after the runtime's message", leftover{file: write("bye"), edit: func(s *runtimeapi.ContainerStatus) { s.Message = "killed" }}, "killed: bye"},
		{"the runtime's message alone", leftover{edit: func(s *runtimeapi.ContainerStatus) { s.Message = "killed" }}, "killed"},
		{"the last 4 KiB", leftover{file: write("x" + strings.Repeat("y", 4096))}, strings.Repeat("y", 4096)},
		{"no file and no fallback", leftover{lines: 3}, ""},
		{"no file", leftover{lines: 2, policy: fallback}, "line 0\nline 1\n"},
		{"an empty file", leftover{file: write(""), lines: 1, policy: fallback}, "line 0\n"},
		{"no mount of the file", leftover{lines: 1, policy: fallback, edit: func(s *runtimeapi.ContainerStatus) { s.Mounts = nil }}, "line 0\n"},
		{"no path", leftover{lines: 1, policy: fallback, edit: func(s *runtimeapi.ContainerStatus) {
			delete(s.Annotations, TerminationMessagePathAnnotation)
		}}, "line 0\n"},
		{"no log of a success", leftover{lines: 1, policy: fallback, edit: func(s *runtimeapi.ContainerStatus) { s.ExitCode = 0 }}, ""},
		{"no log of what could not run", leftover{lines: 1, policy: fallback, edit: func(s *runtimeapi.ContainerStatus) {
			s.Reason = "ContainerCannotRun"
		}}, ""},
		{"a missing log", leftover{policy: fallback, edit: func(s *runtimeapi.ContainerStatus) { s.LogPath = "/none" }},
			`Error on reading termination message from logs: failed to try resolving symlinks in path "/none": lstat /none: no such file or directory`},
		{"a link is not followed", leftover{file: link, edit: func(s *runtimeapi.ContainerStatus) { s.Mounts[1].HostPath += "" }}, "too many levels"},
		{"a pipe is not waited for", leftover{file: func(path string) error { return syscall.Mkfifo(path, 0o600) }}, "not a regular file"},
		{"a directory is none", leftover{file: func(path string) error { return os.Mkdir(path, 0o700) }}, "not a regular file"},
		{"the last mount at the path counts", leftover{file: write("mine"), edit: func(s *runtimeapi.ContainerStatus) {
			s.Mounts = append([]*runtimeapi.Mount{{ContainerPath: messagePath, HostPath: "/etc/passwd"}}, s.Mounts...)
		}}, "mine"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := endMessage(t.Context(), test.status(t))
			if strings.HasPrefix(got, "Error on reading termination log ") {
				if !strings.Contains(got, test.want) {
					t.Errorf("got %q; want %q in it", got, test.want)
				}
			} else if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestOnlyTheEndOfTheLogIsTheMessage(t *testing.T) {
	got := endMessage(t.Context(), leftover{lines: 200, policy: corev1.TerminationMessageFallbackToLogsOnError}.status(t))
	if lines := strings.Count(got, "\n"); lines != 80 || !strings.HasSuffix(got, "line 199\n") {
		t.Errorf("%d lines of the log, the last of which are %q", lines, got[max(0, len(got)-20):])
	}
	end := &lastBytes{}
	for range 3000 {
		if _, err := end.Write([]byte("ab")); err != nil {
			t.Fatal(err)
		}
	}
	if got := end.String(); len(got) != 2048 || got[:2] != "ab" {
		t.Errorf("%d bytes are kept", len(got))
	}
}

func TestMessagesOfAPodAreBoundedTogether(t *testing.T) {
	var containers []pod.Container
	for _, name := range []string{"a", "b", "c", "d", "a"} {
		containers = append(containers, pod.Container{Name: name, Message: strings.Repeat("m", 4096)})
	}
	boundMessages(containers)
	for _, container := range containers {
		if len(container.Message) != 3072 {
			t.Errorf("one of four containers has a message of %d bytes", len(container.Message))
		}
	}
}
