package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	clientspdy "k8s.io/client-go/transport/spdy"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/clock"
)

// forwarder forwards a client's streams to ports of one sandbox, over one
// connection to the runtime. It opens the connection when it is first needed, and
// again after it has broken.
type forwarder struct {
	ctx     context.Context // the client's connection
	address func(context.Context) (*url.URL, error)
	clock   clock.Clock

	mu      sync.Mutex
	conn    httpstream.Connection
	request int
	running sync.WaitGroup // waits for both connections' goroutines
}

// PortForward forwards one connection to a port. The library passes no context
// that ends with the client's connection, so the forwarder's is used.
func (f *forwarder) PortForward(_ context.Context, sandboxID, _ string, port int32, client io.ReadWriteCloser) error {
	conn, request, err := f.begin()
	if err != nil {
		return err
	}
	defer f.running.Done()
	headers := http.Header{}
	headers.Set(portforward.PortHeader, strconv.Itoa(int(port)))
	headers.Set(portforward.PortForwardRequestIDHeader, strconv.Itoa(request))
	headers.Set(portforward.StreamType, portforward.StreamTypeError)
	failure, err := conn.CreateStream(headers.Clone())
	if err != nil {
		_ = conn.Close() // the next stream opens another connection
		return fmt.Errorf("open the error stream for port %d: %w", port, err)
	}
	defer conn.RemoveStreams(failure)
	defer reset(failure) // ends readMessage
	_ = failure.Close()  // nothing is sent on it; it remains readable
	defer context.AfterFunc(f.ctx, func() { reset(failure) })()
	message := f.readMessage(failure, fmt.Sprintf("error forwarding port %d to pod %s, uid : ", port, sandboxID))

	headers.Set(portforward.StreamType, portforward.StreamTypeData)
	data, err := conn.CreateStream(headers.Clone())
	if err != nil {
		// The runtime may have failed before it accepted the stream.
		if failure := f.within(message, time.Second); failure != nil {
			return failure
		}
		reset(failure)
		return fmt.Errorf("open the data stream for port %d: %w", port, err)
	}
	defer conn.RemoveStreams(data)
	defer context.AfterFunc(f.ctx, func() { reset(data) })()

	// The stream ends when the pod has closed its side. The client may send until it
	// closes its own.
	f.running.Go(func() {
		if _, err := io.Copy(data, client); err != nil {
			reset(data)
			return
		}
		_ = data.Close() // half-close: the pod may still answer
	})
	_, err = io.Copy(client, data)
	reset(data)
	_ = client.Close()
	if failure := <-message; failure != nil && f.ctx.Err() == nil {
		return failure
	}
	if err != nil && f.ctx.Err() == nil {
		return fmt.Errorf("read from port %d: %w", port, err)
	}
	return nil
}

// begin returns the connection to the runtime, and a number for a pair of streams
// on it. It adds to the running count.
func (f *forwarder) begin() (httpstream.Connection, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.ctx.Err(); err != nil {
		return nil, 0, err
	}
	if f.conn != nil {
		select {
		case <-f.conn.CloseChan():
			f.conn = nil
		default:
		}
	}
	if f.conn == nil {
		conn, err := f.connect()
		if err != nil {
			return nil, 0, err
		}
		f.conn = conn
	}
	f.request++
	f.running.Add(1)
	return f.conn, f.request, nil
}

// connect opens a connection to the runtime.
func (f *forwarder) connect() (httpstream.Connection, error) {
	runtime, err := f.address(f.ctx)
	if err != nil {
		return nil, err
	}
	transport := newRuntimeTransport(runtime)
	context.AfterFunc(f.ctx, transport.disconnect)
	request, err := http.NewRequestWithContext(f.ctx, http.MethodPost, runtime.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("connect to the container runtime: %w", err)
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("redirect not allowed")
	}}
	conn, _, err := clientspdy.NegotiateStreaming(clientspdy.NewUpgraderForStreaming(transport), client, request, portforward.ProtocolV1Name)
	if err != nil {
		transport.close()
		return nil, fmt.Errorf("connect to the container runtime: %w", err)
	}
	f.running.Go(transport.serving.Wait)
	return conn, nil
}

// readMessage reads an error stream to its end; the result is nil if it is empty.
func (f *forwarder) readMessage(from io.Reader, prefix string) <-chan error {
	message := make(chan error, 1)
	f.running.Go(func() {
		text, err := io.ReadAll(from)
		if len(text) > 0 {
			err = errors.New(withoutPrefixes(string(text), prefix))
		}
		message <- err
	})
	return message
}

// within receives from a channel with a timeout, after which it returns nil.
func (f *forwarder) within(c <-chan error, d time.Duration) error {
	timer := f.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case err := <-c:
		return err
	case <-timer.C():
		return nil
	}
}

func reset(streams ...httpstream.Stream) {
	for _, s := range streams {
		_ = s.Reset() // it may be over already
	}
}

// close closes the connection to the runtime and waits for its goroutines. The
// context is done by then.
func (f *forwarder) close() {
	f.mu.Lock()
	if f.conn != nil {
		_ = f.conn.Close() // the client has disconnected
	}
	f.mu.Unlock()
	f.running.Wait()
}
