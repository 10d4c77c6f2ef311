package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"svc.dev/svc/svclet/pod"
)

var errNoContainer = status.Error(codes.NotFound, "no such container")

// fakeRuntime is a runtime with a streaming server and a few commands.
type fakeRuntime struct {
	streams streaming.Server
	gone    chan string // the commands whose client has gone
	forward func(port int32, stream io.ReadWriteCloser) error

	mu       sync.Mutex
	observed pod.Observed
	statuses map[string]*runtimeapi.ContainerStatus
	attached []*runtimeapi.AttachRequest
	dialled  int
	refuse   error
	// checkpoints are the ID, the file and the timeout of each.
	checkpoints []string
	redirect    string
}

// Checkpoint implements server.Runtime.
func (f *fakeRuntime) Checkpoint(_ context.Context, id, location string, timeout time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	f.checkpoints = append(f.checkpoints, fmt.Sprint(id, " ", filepath.Base(location), " ", timeout))
	return nil
}

func newFakeRuntime(t *testing.T) *fakeRuntime {
	f := &fakeRuntime{observed: webObserved(), gone: make(chan string, 1), statuses: map[string]*runtimeapi.ContainerStatus{}}
	var handler http.Handler
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.dialled++
		redirect := f.redirect
		f.mu.Unlock()
		if redirect != "" {
			http.Redirect(w, r, redirect, http.StatusFound)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	base, err := url.Parse(listener.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	config := streaming.DefaultConfig
	config.BaseURL = base
	if f.streams, err = streaming.NewServer(config, f.commands()); err != nil {
		t.Fatal(err)
	}
	handler = f.streams
	return f
}

func (f *fakeRuntime) commands() streaming.Runtime { return commands{f} }

func (f *fakeRuntime) Pod(context.Context, types.UID) (pod.Observed, error) { return f.observed, nil }

func (f *fakeRuntime) ExecSync(_ context.Context, id string, command []string, _ time.Duration) (stdout, stderr []byte, code int32, err error) {
	if command[0] == "false" {
		return nil, []byte("no"), 1, nil
	}
	return []byte(fmt.Sprint(id, command)), []byte("!"), 0, nil
}

func (f *fakeRuntime) Exec(_ context.Context, r *runtimeapi.ExecRequest) (string, error) {
	if f.refuse != nil {
		return "", f.refuse
	}
	answer, err := f.streams.GetExec(r)
	return answer.GetUrl(), err
}

func (f *fakeRuntime) Attach(_ context.Context, r *runtimeapi.AttachRequest) (string, error) {
	f.mu.Lock()
	f.attached = append(f.attached, r)
	f.mu.Unlock()
	answer, err := f.streams.GetAttach(r)
	return answer.GetUrl(), err
}

func (f *fakeRuntime) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (string, error) {
	if f.refuse != nil {
		return "", f.refuse
	}
	answer, err := f.streams.GetPortForward(r)
	return answer.GetUrl(), err
}

// commands are the commands of the fake's containers.
type commands struct{ f *fakeRuntime }

func (c commands) Exec(_ context.Context, _ string, command []string, in io.Reader, out, errOut io.WriteCloser,
	tty bool, resize <-chan remotecommand.TerminalSize,
) error {
	switch command[0] {
	case "cat": // until its input ends
		_, err := io.Copy(out, in)
		return err
	case "both":
		if errOut == nil {
			return errors.New("no stream of errors")
		}
		fmt.Fprint(out, "out")
		fmt.Fprint(errOut, "err")
	case "exit":
		code, _ := strconv.Atoi(command[1])
		fmt.Fprint(out, "before")
		return exec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
	case "fail":
		return errors.New("no such program")
	case "size": // of its terminal, twice
		for range 2 {
			size := <-resize
			fmt.Fprintf(out, "%dx%d tty=%t\n", size.Width, size.Height, tty)
		}
	case "forever": // until its reader is gone
		for {
			if _, err := out.Write([]byte("tick\n")); err != nil {
				c.f.gone <- command[0]
				return nil
			}
		}
	case "idle": // until its input ends
		fmt.Fprint(out, "ready\n")
		_, _ = io.Copy(io.Discard, in)
		c.f.gone <- command[0]
	}
	return nil
}

func (c commands) Attach(_ context.Context, id string, in io.Reader, out, _ io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	if in == nil {
		fmt.Fprintf(out, "%s tty=%t", id, tty)
		return nil
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	fmt.Fprintf(out, "%s tty=%t said %s", id, tty, line)
	return err
}

func (c commands) PortForward(_ context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	return c.f.forward(port, stream)
}
