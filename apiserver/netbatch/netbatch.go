// Package netbatch owns the batching of writes to a connection: those that follow
// each other quickly become one system call.
//
// HTTP/2 writes the header of a response, its body and every event of a watch as a
// TLS record each, and each record in a system call, which also wakes the reader.
// With many watches on a connection, that is most of the time that sending an
// event takes. Here a write returns when its bytes are in a buffer. The next
// system call sends all bytes that are in the buffer when it begins.
package netbatch

import (
	"net"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// maxPending is how many bytes the buffer may hold before writes wait for it to
	// be sent.
	maxPending = 64 << 10
	// minDirect is the size from which a write is not copied to the buffer, but
	// sent at once, if the buffer is empty.
	minDirect = 8 << 10
	// drainTimeout bounds how long closing a connection waits for its reader.
	drainTimeout = time.Second
	// keepAlivePeriod is that of the library, which sets it only for its own type
	// of connections.
	keepAlivePeriod = 3 * time.Minute
)

// Listener accepts connections whose writes are batched.
type Listener struct {
	net.Listener
	clock   clock.Clock
	buffers sync.Pool
}

// NewListener returns a listener that batches the writes to the connections of l.
func NewListener(l net.Listener, clock clock.Clock) *Listener {
	return &Listener{Listener: l, clock: clock, buffers: sync.Pool{New: func() any { return new([]byte) }}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := accepted.(*net.TCPConn); ok {
		// An error means that the connection is closed already.
		_ = tcp.SetKeepAlive(true)
		_ = tcp.SetKeepAlivePeriod(keepAlivePeriod)
	}
	return l.newConn(accepted), nil
}

// conn is a connection with a buffer of pending bytes. An error of sending them is
// returned by the next write. It also closes the connection, as there may be no
// next write, and then only the reader of the connection notices.
type conn struct {
	net.Conn
	listener *Listener

	mu sync.Mutex
	// room is signaled when bytes have left pending, and when err is set.
	room    *sync.Cond
	pending []byte
	err     error
	// idle is nil if no goroutine writes to the connection, otherwise it is closed
	// when that goroutine ends.
	idle chan struct{}
}

func (l *Listener) newConn(c net.Conn) *conn {
	made := &conn{Conn: c, listener: l}
	made.room = sync.NewCond(&made.mu)
	return made
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && len(c.pending) > 0 && len(c.pending)+len(p) > maxPending {
		c.room.Wait()
	}
	if c.err != nil {
		return 0, c.err
	}
	if c.idle == nil && len(p) >= minDirect {
		return c.writeNow(p)
	}
	if c.pending == nil {
		c.pending = (*c.listener.buffers.Get().(*[]byte))[:0]
	}
	c.pending = append(c.pending, p...)
	if c.idle == nil {
		c.idle = make(chan struct{})
		go c.flush()
	}
	return len(p), nil
}

// writeNow writes p while the buffer is empty. Writes during its system call are
// sent after it. The lock is held when it is called and when it returns.
func (c *conn) writeNow(p []byte) (int, error) {
	c.idle = make(chan struct{})
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	c.err = err
	if err == nil && len(c.pending) > 0 {
		go c.flush()
	} else {
		c.finish()
	}
	return n, err
}

// flush sends the pending bytes until there are none.
func (c *conn) flush() {
	c.mu.Lock()
	for c.err == nil && len(c.pending) > 0 {
		data := c.pending
		c.pending = nil
		c.room.Broadcast()
		c.mu.Unlock()
		_, err := c.Conn.Write(data)
		c.listener.release(data)
		c.mu.Lock()
		c.err = err
	}
	failed := c.err != nil
	c.finish()
	c.mu.Unlock()
	if failed {
		_ = c.Conn.Close() // the error of the write is what counts
	}
}

// finish marks the connection as idle. The lock is held.
func (c *conn) finish() {
	if c.err != nil {
		c.pending = nil
	}
	close(c.idle)
	c.idle = nil
	c.room.Broadcast()
}

// drain waits until the pending bytes are sent, at most for drainTimeout.
func (c *conn) drain() {
	c.mu.Lock()
	idle := c.idle
	c.mu.Unlock()
	if idle == nil {
		return
	}
	late := c.listener.clock.NewTimer(drainTimeout)
	defer late.Stop()
	select {
	case <-idle:
	case <-late.C():
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.drain()
	return c.Conn.Close()
}

// SetWriteDeadline implements net.Conn. TLS sets a deadline in the past to prevent
// further writes; pending bytes are sent before it.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.drainBefore(t)
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn, as SetWriteDeadline.
func (c *conn) SetDeadline(t time.Time) error {
	c.drainBefore(t)
	return c.Conn.SetDeadline(t)
}

// drainBefore drains the connection if the deadline has passed.
func (c *conn) drainBefore(deadline time.Time) {
	if !deadline.IsZero() && !c.listener.clock.Now().Before(deadline) {
		c.drain()
	}
}

// release keeps a buffer for another connection, unless it has grown large.
func (l *Listener) release(buffer []byte) {
	if cap(buffer) <= 2*maxPending {
		l.buffers.Put(&buffer)
	}
}
