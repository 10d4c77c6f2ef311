package stream

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// watch returns a writer and a request for a connection that is about to be
// hijacked: the request's context ends when the client disconnects, when the
// connection has reached its maximum age, and when end is called. A connection
// outlives its context by the time of parting, in which the client can be told why.
func watch(w http.ResponseWriter, r *http.Request, o Options, parting time.Duration) (http.ResponseWriter, *http.Request, func()) {
	ctx, cancel := context.WithCancel(r.Context())
	if o.MaxDuration > 0 {
		timer := o.clock().AfterFunc(o.MaxDuration, cancel)
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	watched := &watchedWriter{ResponseWriter: w, gone: cancel, lingering: o.lingering(), clock: o.clock()}
	stop := context.AfterFunc(ctx, func() { watched.closeAfter(parting) })
	return watched, r.WithContext(ctx), func() {
		// The context ends in time only if it does not wait for the streams' last bytes.
		stop()
		watched.drain()
		cancel()
	}
}

// watchedWriter returns a connection that notices when the client disconnects. It
// has no Unwrap, which would return the connection without that.
type watchedWriter struct {
	http.ResponseWriter
	gone      context.CancelFunc
	lingering time.Duration
	clock     clock.WithDelayedExecution

	mu      sync.Mutex
	conn    *watchedConn
	closed  bool
	parting clock.Timer
}

// Hijack implements http.Hijacker.
func (w *watchedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	watched := &watchedConn{Conn: conn, reader: buffered.Reader, gone: w.gone, done: make(chan struct{})}
	w.mu.Lock()
	w.conn = watched
	closed := w.closed
	w.mu.Unlock()
	if closed {
		_ = watched.Close() // the context is done, and reads and writes will fail
	}
	return watched, bufio.NewReadWriter(bufio.NewReader(watched), bufio.NewWriter(watched)), nil
}

func (w *watchedWriter) close() {
	w.mu.Lock()
	w.closed = true
	conn := w.conn
	w.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // the peer is gone
	}
}

// closeAfter closes the connection after a time.
func (w *watchedWriter) closeAfter(parting time.Duration) {
	if parting == 0 {
		w.close()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parting = w.clock.AfterFunc(parting, w.close)
}

// drain waits until the connection's protocol has closed it, because there may
// still be bytes to send, and closes it after a timeout.
func (w *watchedWriter) drain() {
	w.mu.Lock()
	conn := w.conn
	if w.parting != nil {
		defer w.parting.Stop()
	}
	w.mu.Unlock()
	if conn == nil {
		return
	}
	timer := w.clock.NewTimer(w.lingering)
	defer timer.Stop()
	select {
	case <-conn.done:
	case <-timer.C():
		_ = conn.Close() // the connection is closed for good
	}
}

// watchedConn is a connection that ends its context when a read or a write fails,
// or when its protocol closes it.
type watchedConn struct {
	net.Conn
	reader *bufio.Reader // has what the HTTP server read already
	gone   context.CancelFunc
	once   sync.Once
	done   chan struct{}
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.reader.Read(p)
	if err != nil {
		c.gone()
	}
	return n, err
}

func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.gone()
	}
	return n, err
}

func (c *watchedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.done) })
	c.gone()
	return err
}
