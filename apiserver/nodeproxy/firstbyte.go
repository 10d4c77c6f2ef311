package nodeproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// dialTLS connects to a TLS server and limits the time until its first byte. The
// library limits the TLS handshake of ordinary requests, but not that of requests
// for an upgrade.
func dialTLS(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return withFirstByteTimeout(conn, d.Timeout)
}

// withFirstByteTimeout limits the time until the first byte is read from conn. It
// closes conn on error.
func withFirstByteTimeout(conn net.Conn, timeout time.Duration) (net.Conn, error) {
	if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		conn.Close()
		return nil, err
	}
	return &firstByteConn{Conn: conn, timeout: timeout}, nil
}

// firstByteConn is a connection with a read deadline until its first byte has
// been read, and none afterwards.
type firstByteConn struct {
	net.Conn
	timeout  time.Duration
	received bool
}

// Read implements net.Conn.
func (c *firstByteConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case c.received:
	case n > 0:
		c.received = true
		if cleared := c.Conn.SetReadDeadline(time.Time{}); err == nil {
			err = cleared
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, fmt.Errorf("%s took the connection and has said nothing within %s", c.Conn.RemoteAddr(), c.timeout)
	}
	return n, err
}
