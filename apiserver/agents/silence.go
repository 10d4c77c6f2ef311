package agents

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// dialTLS connects with a server that is going to speak TLS, and so has to say
// something soon. The library bounds the handshake of ordinary requests, but
// not of those that ask for an upgrade.
func dialTLS(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return listen(conn, d.Timeout)
}

// listen gives the other side of a connection a time for its first word.
func listen(conn net.Conn, timeout time.Duration) (net.Conn, error) {
	if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		conn.Close()
		return nil, err
	}
	return &silent{Conn: conn, timeout: timeout}, nil
}

// silent is a connection whose other side has a time for its first word, and
// all the time that it wants for the others.
type silent struct {
	net.Conn
	timeout time.Duration
	heard   bool
}

// Read implements net.Conn.
func (s *silent) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	switch {
	case s.heard:
	case n > 0:
		s.heard = true
		if cleared := s.Conn.SetReadDeadline(time.Time{}); err == nil {
			err = cleared
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, fmt.Errorf("%s took the connection and has said nothing within %s", s.Conn.RemoteAddr(), s.timeout)
	}
	return n, err
}
