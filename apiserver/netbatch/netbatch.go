// Package netbatch joins what is written to a connection in quick succession
// into one system call.
//
// HTTP/2 writes the header of an answer, its body and every event of a watch in
// a TLS record of its own, and each record in a system call, which on its way
// wakes the reader. With many watches on a connection that is most of the time
// of telling of an event. Here a write ends when its bytes are in a buffer;
// those that come until the system call begins, or while it lasts, go with the
// next.
package netbatch

import (
	"net"
	"sync"
	"time"
)

const (
	// most is how many bytes wait for a system call before writes do, too.
	most = 64 << 10
	// direct is from what size on bytes are written at once, not copied, if
	// nothing waits.
	direct = 8 << 10
	// drainTimeout bounds how long closing a connection waits for its reader.
	drainTimeout = time.Second
	// keepAlivePeriod is the library's, which knows only its own connections.
	keepAlivePeriod = 3 * time.Minute
)

// Listener makes connections whose writes are coalesced.
type Listener struct{ net.Listener }

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := accepted.(*net.TCPConn); ok {
		// An error is that of a connection that has gone already.
		_ = tcp.SetKeepAlive(true)
		_ = tcp.SetKeepAlivePeriod(keepAlivePeriod)
	}
	return newConn(accepted), nil
}

// conn is a connection with bytes that wait to be written. An error of writing
// them is that of the next write, and closes the connection, as its reader may
// be the only one who is left to notice.
type conn struct {
	net.Conn

	mu sync.Mutex
	// room is signaled when bytes have left pending, and when err is set.
	room    *sync.Cond
	pending []byte
	err     error
	// idle, while somebody writes to the connection, is closed when he ends;
	// else it is nil.
	idle chan struct{}
}

func newConn(c net.Conn) *conn {
	made := &conn{Conn: c}
	made.room = sync.NewCond(&made.mu)
	return made
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && len(c.pending) > 0 && len(c.pending)+len(p) > most {
		c.room.Wait()
	}
	if c.err != nil {
		return 0, c.err
	}
	if c.idle == nil && len(p) >= direct {
		return c.writeNow(p)
	}
	if c.pending == nil {
		c.pending = (*buffers.Get().(*[]byte))[:0]
	}
	c.pending = append(c.pending, p...)
	if c.idle == nil {
		c.idle = make(chan struct{})
		go c.flush()
	}
	return len(p), nil
}

// writeNow writes while nothing is pending. What comes meanwhile is written
// after it. The lock is held before and after.
func (c *conn) writeNow(p []byte) (int, error) {
	c.idle = make(chan struct{})
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	c.err = err
	if err == nil && len(c.pending) > 0 {
		go c.flush()
	} else {
		c.rest()
	}
	return n, err
}

// flush writes what is pending until nothing is.
func (c *conn) flush() {
	c.mu.Lock()
	for c.err == nil && len(c.pending) > 0 {
		data := c.pending
		c.pending = nil
		c.room.Broadcast()
		c.mu.Unlock()
		_, err := c.Conn.Write(data)
		release(data)
		c.mu.Lock()
		c.err = err
	}
	failed := c.err != nil
	c.rest()
	c.mu.Unlock()
	if failed {
		_ = c.Conn.Close() // it is lost already
	}
}

// rest ends writing. The lock is held.
func (c *conn) rest() {
	if c.err != nil {
		c.pending = nil
	}
	close(c.idle)
	c.idle = nil
	c.room.Broadcast()
}

// drain waits until what was written has been passed on, or the reader proves
// too slow.
func (c *conn) drain() {
	c.mu.Lock()
	idle := c.idle
	c.mu.Unlock()
	if idle == nil {
		return
	}
	late := time.NewTimer(drainTimeout)
	defer late.Stop()
	select {
	case <-idle:
	case <-late.C:
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.drain()
	return c.Conn.Close()
}

// SetWriteDeadline implements net.Conn. A deadline that is over, by which TLS
// forbids further writes, is not for those that were made.
func (c *conn) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() && time.Until(t) <= 0 {
		c.drain()
	}
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn, as SetWriteDeadline.
func (c *conn) SetDeadline(t time.Time) error {
	if !t.IsZero() && time.Until(t) <= 0 {
		c.drain()
	}
	return c.Conn.SetDeadline(t)
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

func release(buffer []byte) {
	if cap(buffer) <= 2*most {
		buffers.Put(&buffer)
	}
}
