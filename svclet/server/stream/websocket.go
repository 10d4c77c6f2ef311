package stream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criremote "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	"k8s.io/utils/exec"
)

// statusTimeout is how long a client may take to receive the command's status.
const statusTimeout = 10 * time.Second

// serveV5 serves a session over v5.channel.k8s.io, in which the client can close
// its standard input (KEP-4006). k8s.io/cri-streaming does not support it.
func serveV5(w http.ResponseWriter, r *http.Request, run *session, s Streams, o Options) {
	channels := make([]wsstream.ChannelType, 5)
	if s.Stdin {
		channels[criremote.StreamStdIn] = wsstream.ReadChannel
	}
	if s.Stdout {
		channels[criremote.StreamStdOut] = wsstream.WriteChannel
	}
	if s.Stderr {
		channels[criremote.StreamStdErr] = wsstream.WriteChannel
	}
	channels[criremote.StreamErr] = wsstream.WriteChannel
	channels[criremote.StreamResize] = wsstream.ReadChannel

	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		criremote.StreamProtocolV5Name: {Binary: true, Channels: channels},
	})
	conn.SetIdleTimeout(o.IdleTimeout)
	logger := klog.FromContext(r.Context())
	_, streams, err := conn.Open(w, r)
	if err != nil {
		logger.V(2).Info("Failed to open websocket for a command", "err", err)
		return
	}
	defer conn.Close()

	// An empty message tells the client that it is connected.
	if _, err := streams[firstWritable(s)].Write(nil); err != nil {
		logger.V(2).Info("Failed to write to websocket before the command started", "err", err)
		return
	}
	resize := make(chan criremote.TerminalSize)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		readSizes(r.Context(), streams[criremote.StreamResize], resize)
	}()
	defer func() {
		_ = streams[criremote.StreamResize].Close() // ends readSizes
		<-ended
	}()

	err = run.run(r.Context(), streams[criremote.StreamStdIn], streams[criremote.StreamStdOut], streams[criremote.StreamStdErr], resize)
	status, err := json.Marshal(run.status(err))
	if err != nil {
		logger.Error(err, "Failed to encode the command's status")
		return
	}
	conn.SetWriteDeadline(statusTimeout)
	if _, err := streams[criremote.StreamErr].Write(status); err != nil {
		logger.V(2).Info("Failed to write the command's status to websocket", "err", err)
	}
}

func firstWritable(s Streams) int {
	switch {
	case s.Stdout:
		return criremote.StreamStdOut
	case s.Stderr:
		return criremote.StreamStdErr
	}
	return criremote.StreamErr
}

func readSizes(ctx context.Context, from io.Reader, to chan<- criremote.TerminalSize) {
	defer close(to)
	decoder := json.NewDecoder(from)
	for {
		var size criremote.TerminalSize
		if err := decoder.Decode(&size); err != nil {
			return // the stream has ended or is invalid
		}
		select {
		case to <- size:
		case <-ctx.Done():
			return
		}
	}
}

// status returns the status for the error channel, which is that of
// v4.channel.k8s.io.
func (s *session) status(err error) metav1.Status {
	var exit exec.ExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit) && exit.Exited():
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: criremote.NonZeroExitCodeReason,
			Message: "command terminated with non-zero exit code: " + exit.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
				Type: criremote.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitStatus()),
			}}},
		}
	}
	message := "error " + s.verb + ": " + s.message(err)
	return metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError,
		Message: "Internal error occurred: " + message,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: message}}},
	}
}
