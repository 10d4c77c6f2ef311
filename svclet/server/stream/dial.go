package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/moby/spdystream"
	corev1 "k8s.io/api/core/v1"
	criremote "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// ParseRuntimeURL checks the URL at which the runtime serves a stream.
func ParseRuntimeURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("the container runtime names an unusable address for the stream: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the container runtime names an unusable address for the stream: scheme %q, host %q", u.Scheme, u.Host)
	}
	return u, nil
}

// runtimeTransport opens one SPDY connection to the runtime's streaming server,
// without a proxy, and owns its goroutine. A TLS certificate there is self-signed
// by the runtime and is not verified: the one-time token in the URL, which came
// over the runtime's socket, authenticates the runtime.
type runtimeTransport struct {
	// needsStatus makes the end of the error stream without a status an error: a runtime
	// that ends is no success of the command. Ports have no such status.
	needsStatus bool

	upgrades *http.Transport
	serving  sync.WaitGroup

	mu   sync.Mutex
	raw  net.Conn           // what was dialled
	body io.ReadWriteCloser // the same after the upgrade, through TLS where that is used
}

var _ httpstream.UpgradeRoundTripper = &runtimeTransport{}

func newRuntimeTransport(runtime *url.URL) *runtimeTransport {
	t := &runtimeTransport{}
	t.upgrades = &http.Transport{DialContext: t.dial, DisableCompression: true}
	if runtime.Scheme == "https" {
		t.upgrades.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // see above
	}
	return t
}

func (t *runtimeTransport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raw = c
	return c, nil
}

// RoundTrip requests the upgrade.
func (t *runtimeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	r.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	resp, err := t.upgrades.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.body, _ = resp.Body.(io.ReadWriteCloser) // as http.Transport documents
	resp.Body = http.NoBody                    // client-go closes it as soon as there is a connection
	return resp, nil
}

// NewConnection returns the connection after an upgrade.
func (t *runtimeTransport) NewConnection(resp *http.Response) (httpstream.Connection, error) {
	if resp.StatusCode != http.StatusSwitchingProtocols {
		message, err := io.ReadAll(io.LimitReader(resp.Body, maxUpgradeError))
		if err != nil {
			return nil, fmt.Errorf("the container runtime answered %s: read the message: %w", resp.Status, err)
		}
		return nil, fmt.Errorf("the container runtime answered %s: %s", resp.Status, strings.TrimSpace(string(message)))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if protocol := resp.Header.Get(httpstream.HeaderUpgrade); t.body == nil || !strings.EqualFold(protocol, spdy.HeaderSpdy31) {
		return nil, fmt.Errorf("the container runtime switched to protocol %q: must be %s", protocol, spdy.HeaderSpdy31)
	}
	conn, err := spdystream.NewConnection(&upgradedConn{Conn: t.raw, body: t.body}, false)
	if err != nil {
		return nil, err
	}
	c := &runtimeConnection{conn: conn, disconnect: t.disconnect, served: make(chan struct{}), streams: map[uint32]httpstream.Stream{}}
	// Before v4.channel.k8s.io the status of a success is empty.
	c.needsStatus = t.needsStatus && resp.Header.Get(httpstream.HeaderProtocolVersion) >= criremote.StreamProtocolV4Name
	t.serving.Go(func() {
		defer close(c.served)
		conn.Serve(spdystream.NoOpStreamHandler)
	})
	return c, nil
}

// maxUpgradeError limits the message of a refused upgrade, in bytes.
const maxUpgradeError = 4096

// disconnect closes the connection: all its streams end, and those being opened
// fail.
func (t *runtimeTransport) disconnect() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.body != nil {
		_ = t.body.Close() // the connection is over in any case
	}
	if t.raw != nil {
		_ = t.raw.Close() // an upgrade that was refused or is not answered
	}
}

// close disconnects, and waits for the goroutine of the connection.
func (t *runtimeTransport) close() {
	t.disconnect()
	t.serving.Wait()
}

// upgradedConn is a connection after its upgrade.
type upgradedConn struct {
	net.Conn
	body io.ReadWriteCloser
}

func (c *upgradedConn) Read(p []byte) (int, error)  { return c.body.Read(p) }
func (c *upgradedConn) Write(p []byte) (int, error) { return c.body.Write(p) }
func (c *upgradedConn) Close() error                { return c.body.Close() }

// runtimeConnection is a SPDY connection whose streams do not outlive it. That of
// k8s.io/streaming waits 30 s for the answer to a new stream, even after the
// connection was closed, and its shutdown waits for such a stream without limit.
type runtimeConnection struct {
	conn        *spdystream.Connection
	needsStatus bool
	disconnect  func()
	served      chan struct{} // closed after the last frame was handled

	mu      sync.Mutex
	streams map[uint32]httpstream.Stream
}

// answerTimeout is how long the runtime may take to accept a stream, as in
// k8s.io/streaming; answerPoll is how often the end of the connection is noticed
// meanwhile, because the library has no channel for both.
const (
	answerTimeout = 30 * time.Second
	answerPoll    = 50 * time.Millisecond
)

var (
	errConnectionEnded = errors.New("the connection to the container runtime has ended")
	errNoAnswer        = fmt.Errorf("the container runtime did not accept a stream within %s", answerTimeout)
)

// CreateStream implements httpstream.Connection. It returns when the connection
// ends.
func (c *runtimeConnection) CreateStream(headers http.Header) (httpstream.Stream, error) {
	stream, err := c.conn.CreateStream(headers, nil, false)
	if err != nil {
		return nil, err
	}
	for waited := time.Duration(0); ; waited += answerPoll {
		err := stream.WaitTimeout(answerPoll)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.streams[stream.Identifier()] = stream
			if c.needsStatus && headers.Get(corev1.StreamType) == corev1.StreamTypeError {
				return &statusStream{Stream: stream}, nil
			}
			return stream, nil
		}
		if !errors.Is(err, spdystream.ErrTimeout) {
			return nil, err
		}
		select {
		case <-c.served:
			if waited >= answerTimeout {
				return nil, errNoAnswer
			}
			return nil, errConnectionEnded
		default:
		}
		if waited >= answerTimeout {
			c.disconnect() // a late answer would block the library
		}
	}
}

// statusStream is a stream on which the runtime sends a status.
type statusStream struct {
	httpstream.Stream
	received bool
}

var errNoStatus = errors.New("the container runtime has ended the connection before the command has ended")

// Read implements io.Reader.
func (s *statusStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	s.received = s.received || n > 0
	if errors.Is(err, io.EOF) && !s.received {
		err = errNoStatus
	}
	return n, err
}

// Close implements httpstream.Connection. It resets all streams.
func (c *runtimeConnection) Close() error {
	c.mu.Lock()
	streams := c.streams
	c.streams = map[uint32]httpstream.Stream{}
	c.mu.Unlock()
	for _, s := range streams {
		reset(s)
	}
	c.disconnect()
	return nil
}

// CloseChan implements httpstream.Connection.
func (c *runtimeConnection) CloseChan() <-chan bool { return c.conn.CloseChan() }

// SetIdleTimeout implements httpstream.Connection.
func (c *runtimeConnection) SetIdleTimeout(timeout time.Duration) { c.conn.SetIdleTimeout(timeout) }

// RemoveStreams implements httpstream.Connection.
func (c *runtimeConnection) RemoveStreams(streams ...httpstream.Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range streams {
		if s != nil {
			delete(c.streams, s.Identifier())
		}
	}
}
