package stream

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// watch returns a writer and a request that go on with the client's connection
// after it has been taken over from the HTTP server: the request's context ends
// when the client goes, when the connection has lasted too long, and when end
// is called; no connection outlives its context.
func watch(w http.ResponseWriter, r *http.Request, o Options) (http.ResponseWriter, *http.Request, func()) {
	ctx, cancel := context.WithCancel(r.Context())
	if o.MaxDuration > 0 {
		timer := time.AfterFunc(o.MaxDuration, cancel)
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	watched := &watchedWriter{ResponseWriter: w, gone: cancel, lingering: o.lingering()}
	stop := context.AfterFunc(ctx, watched.close)
	return watched, r.WithContext(ctx), func() {
		// The context is over in good time only if nobody waits for the
		// streams' last bytes.
		stop()
		watched.drain()
		cancel()
	}
}

// watchedWriter hands out a connection that tells when the client has gone. It
// does not unwrap: that would hand out the one that does not.
type watchedWriter struct {
	http.ResponseWriter
	gone      context.CancelFunc
	lingering time.Duration

	mu     sync.Mutex
	conn   *watchedConn
	closed bool
}

// Hijack takes the connection over from the HTTP server.
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
		_ = watched.Close() // the context has ended; reads and writes will say so
	}
	return watched, bufio.NewReadWriter(bufio.NewReader(watched), bufio.NewWriter(watched)), nil
}

func (w *watchedWriter) close() {
	w.mu.Lock()
	w.closed = true
	conn := w.conn
	w.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // nobody is left whom an error would concern
	}
}

// drain waits for the connection to be closed by its protocol, which may still
// have bytes to send, and closes it if that takes too long.
func (w *watchedWriter) drain() {
	w.mu.Lock()
	conn := w.conn
	w.mu.Unlock()
	if conn == nil {
		return
	}
	timer := time.NewTimer(w.lingering)
	defer timer.Stop()
	select {
	case <-conn.done:
	case <-timer.C:
		_ = conn.Close() // it was for good
	}
}

// watchedConn is a connection of which nothing is left once reading or writing
// has failed, or its protocol has closed it.
type watchedConn struct {
	net.Conn
	reader *bufio.Reader // holds what the HTTP server had read already
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
