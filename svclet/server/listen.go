package server

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// Listeners are the open ports of a server.
type Listeners struct {
	// readOnly and healthz are nil if they are turned off.
	secure, readOnly, healthz net.Listener
}

// Listen opens the ports that the options name. The caller serves on them with
// [Server.Serve], or closes them.
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
		*port.listener = limited{opened}
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
