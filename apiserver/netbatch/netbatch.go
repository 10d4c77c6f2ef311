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
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// maxPending is how many bytes the buffer may hold before writes wait for it to
	// be sent.
	maxPending = 64 << 10
	// minDirect is the size from which a write is not copied to the buffer, but
	// sent at once, if the buffer is empty.
	minDirect = 8 << 10
	// lingerTimeout bounds how long a closed connection sends what is pending, and
	// stopTimeout how long Drain waits for it.
	lingerTimeout = 5 * time.Minute
	stopTimeout   = time.Second
	// keepAlivePeriod is that of the library, which sets it only for its own type
	// of connections.
	keepAlivePeriod = 3 * time.Minute
)

// Listener accepts connections whose writes are batched.
type Listener struct {
	net.Listener
	buffers sync.Pool

	mu sync.Mutex
	// lingering is the number of connections that are closed and still send what is pending;
	// sent gets a value when one of them has ended.
	lingering int
	sent      chan struct{}
}

// NewListener returns a listener that batches the writes to the connections of l.
func NewListener(l net.Listener) *Listener {
	return &Listener{Listener: l, buffers: sync.Pool{New: func() any { return new([]byte) }}, sent: make(chan struct{}, 1)}
}

// Drain waits until the closed connections have sent what was pending, for at most a second. A
// process calls it before it ends.
func (l *Listener) Drain() {
	late := time.After(stopTimeout)
	for l.linger(0) > 0 {
		select {
		case <-l.sent:
		case <-late:
			return
		}
	}
}

// linger changes the number of lingering connections, and returns it.
func (l *Listener) linger(change int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lingering += change
	if change < 0 {
		select {
		case l.sent <- struct{}{}:
		default:
		}
	}
	return l.lingering
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
	// room is signaled when bytes have left pending, and when refusal may have changed.
	room    *sync.Cond
	pending []byte
	err     error
	// sending is whether a goroutine writes to the connection, and direct whether that is a
	// caller of Write, whose bytes are not pending.
	sending, direct bool
	// closed is whether Close was called, and lingering whether pending bytes are sent
	// nevertheless.
	closed, lingering bool
	// deadline is that of callers of Write; pending bytes have none. Expiry wakes those that
	// wait for room.
	deadline time.Time
	expiry   *time.Timer
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
	for c.refusal() == nil && len(c.pending) > 0 && len(c.pending)+len(p) > maxPending {
		c.room.Wait()
	}
	if err := c.refusal(); err != nil {
		return 0, err
	}
	if !c.sending && len(p) >= minDirect {
		return c.writeNow(p)
	}
	if c.pending == nil {
		c.pending = (*c.listener.buffers.Get().(*[]byte))[:0]
	}
	c.pending = append(c.pending, p...)
	if !c.sending {
		c.sending = true
		go c.flush()
	}
	return len(p), nil
}

// refusal returns why the connection accepts no writes, or nil. The lock is held.
func (c *conn) refusal() error {
	switch {
	case c.err != nil:
		return c.err
	case c.closed:
		return net.ErrClosed
	case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// writeNow writes p while the buffer is empty. Writes during its system call are
// sent after it. The lock is held when it is called and when it returns.
func (c *conn) writeNow(p []byte) (int, error) {
	c.sending, c.direct = true, true
	limited := !c.deadline.IsZero()
	if limited {
		_ = c.Conn.SetWriteDeadline(c.deadline) // if it fails, so does the write
	}
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	c.direct = false
	if limited || !c.deadline.IsZero() {
		_ = c.Conn.SetWriteDeadline(time.Time{})
	}
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

// finish marks the connection as idle, and ends it if it lingers. The lock is held.
func (c *conn) finish() {
	if c.err != nil {
		c.pending = nil
	}
	c.sending = false
	c.room.Broadcast()
	if c.lingering {
		_ = c.Conn.Close() // the caller of Close has gone on
		c.listener.linger(-1)
	}
}

// Close implements net.Conn. Pending bytes are sent before the connection ends, as the kernel
// sends those of a socket that a program has closed; Close does not wait for that. A caller of
// Write that waits gets an error.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.room.Broadcast()
	if c.expiry != nil {
		c.expiry.Stop()
	}
	if !c.sending || c.direct {
		return c.Conn.Close()
	}
	c.lingering = true
	c.listener.linger(1)
	now := time.Now()
	return errors.Join(c.Conn.SetReadDeadline(now), c.Conn.SetWriteDeadline(now.Add(lingerTimeout)))
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && c.isClosed() {
		err = net.ErrClosed
	}
	return n, err
}

func (c *conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// SetWriteDeadline implements net.Conn. Pending bytes are sent after it, too: TLS sets a deadline
// in the past before it closes a connection.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.deadline = t
	if c.expiry != nil {
		c.expiry.Stop()
		c.expiry = nil
	}
	if !t.IsZero() {
		c.expiry = time.AfterFunc(time.Until(t), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.room.Broadcast()
		})
	}
	if !c.direct {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// release keeps a buffer for another connection, unless it has grown large.
func (l *Listener) release(buffer []byte) {
	if cap(buffer) <= 2*maxPending {
		l.buffers.Put(&buffer)
	}
}
