package stream

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	"k8s.io/utils/clock"
)

// Options limit streams.
type Options struct {
	// IdleTimeout closes idle connections. Zero means no timeout.
	IdleTimeout time.Duration
	// CreationTimeout is how long a client may take to open the streams that it
	// announced. Zero means 30 s.
	CreationTimeout time.Duration
	// Lingering is how long a connection may take to send its remaining data after its
	// streams have ended, or have been ended. Zero means 5 s.
	Lingering time.Duration
	// MaxDuration is the maximum age of a connection. Zero means no limit.
	MaxDuration time.Duration
	// Clock measures MaxDuration and Lingering. Nil means the real one.
	Clock clock.WithDelayedExecution
}

func (o Options) clock() clock.WithDelayedExecution {
	if o.Clock == nil {
		return clock.RealClock{}
	}
	return o.Clock
}

func (o Options) creationTimeout() time.Duration {
	if o.CreationTimeout == 0 {
		return remotecommand.DefaultStreamCreationTimeout
	}
	return o.CreationTimeout
}

func (o Options) lingering() time.Duration {
	if o.Lingering == 0 {
		return 5 * time.Second
	}
	return o.Lingering
}

// Streams are the standard streams that a client requests.
type Streams = remotecommand.Options

// ParseStreams reads from the query which streams a client requests.
func ParseStreams(r *http.Request) (*Streams, error) {
	return remotecommand.NewOptions(r)
}

// Exec serves the streams of a command at the runtime's URL. It returns when the
// command has ended or the client has disconnected.
func Exec(w http.ResponseWriter, r *http.Request, runtime *url.URL, s Streams, o Options) {
	conn, r, end := watch(w, r, o, o.lingering())
	defer end()
	run := &session{runtime: runtime, streams: s, verb: "executing command in container"}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		serveV5(conn, r, run, s, o)
		return
	}
	remotecommand.ServeExec(conn, r, run, "", "", "", nil, &s, o.IdleTimeout, o.creationTimeout(),
		remotecommand.SupportedStreamingProtocols)
}

// Attach serves the streams of a running container. tty reports whether the
// container has a terminal, whatever the client requests.
func Attach(w http.ResponseWriter, r *http.Request, runtime *url.URL, s Streams, tty bool, o Options) {
	conn, r, end := watch(w, r, o, o.lingering())
	defer end()
	theirs := s
	theirs.TTY = tty
	run := &session{runtime: runtime, streams: theirs, verb: "attaching to container"}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		serveV5(conn, r, run, s, o)
		return
	}
	remotecommand.ServeAttach(conn, r, run, "", "", "", &s, o.IdleTimeout, o.creationTimeout(),
		remotecommand.SupportedStreamingProtocols)
}

// PortForward serves connections to ports of a pod's sandbox. It connects to the
// runtime at once, and again after that connection has broken; address returns a
// new URL each time. An error means that the client has not been answered yet.
func PortForward(w http.ResponseWriter, r *http.Request, sandboxID string, address func(context.Context) (*url.URL, error), ports []int32, o Options) error {
	conn, r, end := watch(w, r, o, 0)
	f := &forwarder{ctx: r.Context(), address: address, clock: o.clock()}
	defer f.close()
	defer end()
	var err error
	if f.conn, err = f.connect(); err != nil {
		return err
	}
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		if conn, r, err = tunnel(conn, r); err != nil {
			klog.FromContext(f.ctx).V(2).Info("Failed to open websocket for port forwarding", "err", err)
			return nil
		}
	}
	portforward.ServePortForward(conn, r, f, sandboxID, "", &portforward.V4Options{Ports: ports},
		o.IdleTimeout, o.creationTimeout(), portforward.SupportedProtocols)
	return nil
}

// ParsePorts reads from the query which ports a client requests. Only the old
// websocket protocol has them there.
func ParsePorts(r *http.Request) ([]int32, error) {
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		return nil, nil
	}
	o, err := portforward.NewV4Options(r)
	if err != nil {
		return nil, err
	}
	if len(o.Ports) > maxPorts {
		return nil, fmt.Errorf("%d ports are asked for, and a websocket has room for %d", len(o.Ports), maxPorts)
	}
	return o.Ports, nil
}

// maxPorts is the maximum of the old websocket protocol: each port has two
// channels, and a channel number is a byte.
const maxPorts = 128

// withoutPrefixes removes prefixes of a runtime's message that will be added again
// for the client.
func withoutPrefixes(message string, prefixes ...string) string {
	for trimmed := true; trimmed; {
		trimmed = false
		for _, p := range prefixes {
			if rest, ok := strings.CutPrefix(message, p); ok {
				message, trimmed = rest, true
			}
		}
	}
	return message
}
