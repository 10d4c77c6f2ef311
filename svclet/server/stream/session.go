package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	criremote "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"
)

// session is one command or attached container in the runtime.
type session struct {
	runtime *url.URL
	streams Streams
	// verb describes the operation in errors, as k8s.io/cri-streaming does.
	verb string
}

// ExecInContainer runs the session; k8s.io/cri-streaming calls it with the
// client's streams. Streams that were not requested are left out, even if the
// client has opened them.
func (s *session) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader, out, errOut io.WriteCloser,
	_ bool, resize <-chan criremote.TerminalSize, _ time.Duration,
) error {
	return s.attempt(ctx, in, out, errOut, resize)
}

// AttachContainer is ExecInContainer for attach.
func (s *session) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errOut io.WriteCloser,
	_ bool, resize <-chan criremote.TerminalSize,
) error {
	return s.attempt(ctx, in, out, errOut, resize)
}

// attempt runs the session, and formats its error for the client.
func (s *session) attempt(ctx context.Context, in io.Reader, out, errOut io.Writer, resize <-chan criremote.TerminalSize) error {
	err := s.run(ctx, in, out, errOut, resize)
	var exit exec.ExitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return errors.New(s.message(err))
}

func (s *session) run(ctx context.Context, in io.Reader, out, errOut io.Writer, resize <-chan criremote.TerminalSize) error {
	transport := newRuntimeTransport(s.runtime)
	transport.needsStatus = true
	defer transport.close()
	executor, err := remotecommand.NewSPDYExecutorRejectRedirects(transport, clientspdy.NewUpgraderForStreaming(transport), http.MethodPost, s.runtime)
	if err != nil {
		return fmt.Errorf("connect to the container runtime: %w", err)
	}
	o := remotecommand.StreamOptions{Tty: s.streams.TTY}
	if s.streams.Stdin {
		o.Stdin = &clientReader{ctx, in}
	}
	if s.streams.Stdout {
		o.Stdout = &clientWriter{ctx: ctx, to: out}
	}
	if s.streams.Stderr && !s.streams.TTY {
		o.Stderr = &clientWriter{ctx: ctx, to: errOut}
	}
	if s.streams.TTY && resize != nil {
		o.TerminalSizeQueue = sizes{ctx: ctx, next: resize}
	}
	err = executor.StreamWithContext(ctx, o)
	if errors.Is(err, context.Canceled) {
		return errEnded
	}
	return err
}

// errEnded is why a session ends before its command.
var errEnded = errors.New("the connection was ended before the command: by the client, by its maximum age, or because svclet stops")

// message returns the error for the client, without the prefixes that both the
// runtime's server and the agent's would add.
func (s *session) message(err error) string {
	return withoutPrefixes(err.Error(), "Internal error occurred: ", "error "+s.verb+": ")
}

// sizes forwards the sizes of the client's terminal.
type sizes struct {
	ctx  context.Context
	next <-chan criremote.TerminalSize
}

// Next returns nil when there will be no more sizes.
func (s sizes) Next() *remotecommand.TerminalSize {
	select {
	case size, ok := <-s.next:
		if !ok {
			return nil
		}
		return &remotecommand.TerminalSize{Width: size.Width, Height: size.Height}
	case <-s.ctx.Done():
		return nil
	}
}
