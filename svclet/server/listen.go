package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// Listeners are the open ports of a server.
type Listeners struct {
	// readOnly and healthz are nil if they are turned off.
	secure, readOnly, healthz net.Listener
}

// Listen opens the ports that the options name. The caller serves on them with
// [Server.Serve], or closes them. A connection that is opened before they are served waits
// for that for 10 seconds, and is closed then.
func Listen(ctx context.Context, o Options) (*Listeners, error) {
	l := &Listeners{}
	for _, port := range []struct {
		name     string
		address  string
		port     int32
		wanted   bool
		listener *net.Listener
	}{
		{"secure", o.Address, o.Port, true, &l.secure},
		{"read-only", o.Address, o.ReadOnlyPort, o.ReadOnlyPort != 0, &l.readOnly},
		{"health", o.HealthzBindAddress, o.HealthzPort, o.HealthzPort != 0, &l.healthz},
	} {
		if !port.wanted {
			continue
		}
		var c net.ListenConfig
		opened, err := c.Listen(ctx, "tcp", net.JoinHostPort(port.address, strconv.Itoa(int(port.port))))
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("listen on the %s port: %w", port.name, err)
		}
		*port.listener = acceptFrom(limited{opened})
	}
	return l, nil
}

// Port returns the secure port: the daemon endpoint in the node's status.
func (l *Listeners) Port() int32 {
	if a, ok := l.secure.Addr().(*net.TCPAddr); ok {
		return int32(a.Port) //nolint:gosec // ports fit
	}
	return 0
}

// Close closes the ports if no server serves on them.
func (l *Listeners) Close() {
	for _, listener := range []net.Listener{l.secure, l.readOnly, l.healthz} {
		if listener != nil {
			_ = listener.Close() // It was never served.
		}
	}
}

const (
	// startWait is how long a connection waits for the server to serve.
	startWait = 10 * time.Second
	// maxWaiting is how many connections wait; the kernel's queue has further ones.
	maxWaiting = 100
)

// waiting is a listener that accepts connections before its Accept is called. Each waits
// for Accept no longer than startWait.
type waiting struct {
	net.Listener
	accepted chan acceptance
	slots    chan struct{} // one for each connection that waits
	closed   chan struct{}
	close    func()
	running  sync.WaitGroup
}

// acceptance is a result of Accept.
type acceptance struct {
	conn net.Conn
	err  error
}

// acceptFrom returns a listener that has the connections of another one, until it is
// closed.
func acceptFrom(l net.Listener) *waiting {
	w := &waiting{Listener: l, accepted: make(chan acceptance), slots: make(chan struct{}, maxWaiting), closed: make(chan struct{})}
	w.close = sync.OnceFunc(func() { close(w.closed) })
	w.running.Go(w.run)
	return w
}

func (w *waiting) run() {
	for {
		conn, err := w.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case w.accepted <- acceptance{err: err}:
			case <-w.closed:
			}
			continue
		}
		w.slots <- struct{}{} // each is free after startWait at the latest
		w.running.Go(func() {
			defer func() { <-w.slots }()
			late := time.NewTimer(startWait)
			defer late.Stop()
			select {
			case w.accepted <- acceptance{conn: conn}:
				return
			case <-late.C:
			case <-w.closed:
			}
			_ = conn.Close() // nothing was sent
		})
	}
}

// Accept implements net.Listener.
func (w *waiting) Accept() (net.Conn, error) {
	select {
	case a := <-w.accepted:
		return a.conn, a.err
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It also closes the connections that wait.
func (w *waiting) Close() error {
	w.close()
	err := w.Listener.Close()
	w.running.Wait()
	return err
}
