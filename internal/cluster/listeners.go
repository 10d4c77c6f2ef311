package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// listeners accept the connections of a server at a first address and, once [listeners.Set]
// has named them, at further ones.
type listeners struct {
	net.Listener // the first one

	accepted chan acceptance
	closed   chan struct{}
	running  sync.WaitGroup
	admit    atomic.Pointer[func(client netip.Addr) bool]

	mu   sync.Mutex
	more map[netip.AddrPort]net.Listener // nil when closed
}

// acceptance is what Accept returns.
type acceptance struct {
	conn net.Conn
	err  error
}

// listenAt returns listeners of a first address.
func listenAt(first net.Listener) *listeners {
	l := &listeners{Listener: first, accepted: make(chan acceptance), closed: make(chan struct{}), more: map[netip.AddrPort]net.Listener{}}
	l.running.Go(func() { l.accept(first, func(netip.Addr) bool { return true }) })
	return l
}

// accept hands over connections of clients that are admitted until the listener is closed,
// and closes others.
func (l *listeners) accept(from net.Listener, admit func(client netip.Addr) bool) {
	for {
		conn, err := from.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && !admit(clientOf(conn)) {
			conn.Close()
			continue
		}
		select {
		case l.accepted <- acceptance{conn, err}:
		case <-l.closed:
			if err == nil {
				conn.Close()
			}
			return
		}
	}
}

// clientOf returns the address of the client of a TCP connection.
func clientOf(conn net.Conn) netip.Addr {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// Accept implements net.Listener.
func (l *listeners) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener, for all addresses.
func (l *listeners) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		return nil
	}
	close(l.closed)
	errs := []error{l.Listener.Close()}
	for _, other := range l.more {
		errs = append(errs, other.Close())
	}
	l.more = nil
	l.running.Wait()
	return errors.Join(errs...)
}

// Set replaces the further addresses. Connections that are open stay. Only clients that admit
// accepts are served there. After an error, the addresses that could be opened are served.
func (l *listeners) Set(ctx context.Context, addresses []netip.AddrPort, admit func(client netip.Addr) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		return net.ErrClosed
	}
	l.admit.Store(&admit)
	before := l.more
	l.more = map[netip.AddrPort]net.Listener{}
	var errs []error
	for _, address := range addresses {
		if open, ok := before[address]; ok {
			l.more[address] = open
			delete(before, address)
			continue
		}
		open, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address.String())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l.more[address] = open
		l.running.Go(func() { l.accept(open, func(client netip.Addr) bool { return (*l.admit.Load())(client) }) })
	}
	for _, other := range before {
		errs = append(errs, other.Close())
	}
	return errors.Join(errs...)
}
