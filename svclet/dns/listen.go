package dns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/klog/v2"
)

// listenAttempts bounds the search for a port that is free for UDP and TCP.
const listenAttempts = 10

// socket is one address at which the server listens.
type socket struct {
	tcp net.Listener
	udp net.PacketConn
}

func (s socket) address() netip.AddrPort { return s.tcp.Addr().(*net.TCPAddr).AddrPort() }

func (s socket) close() error { return errors.Join(s.tcp.Close(), s.udp.Close()) }

// reopen opens the address of a socket that is closed.
func (s socket) reopen(ctx context.Context) (socket, error) {
	address := s.address()
	return listenAt(ctx, address.Addr(), fmt.Sprint(address.Port()))
}

// listen opens the port that a file names or, if it names none that is free, another one,
// which it writes to the file.
func listen(ctx context.Context, file string, ipv6 bool) ([]socket, error) {
	if port := readPort(ctx, file); port != "" {
		if sockets, err := listenAtAll(ctx, port, ipv6); err == nil {
			return sockets, nil
		}
	}
	var errs []error
	for range listenAttempts {
		sockets, err := listenAtAll(ctx, "0", ipv6)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := writePort(file, int(sockets[0].address().Port())); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to keep the port of the DNS server, which will be another one after a restart")
		}
		return sockets, nil
	}
	return nil, fmt.Errorf("open a port for the DNS server: %w", errors.Join(errs...))
}

// listenAtAll opens the same port of the loopback address and, on a machine that has IPv6,
// of [Address6], which need not be there yet.
func listenAtAll(ctx context.Context, port string, ipv6 bool) ([]socket, error) {
	first, err := listenAt(ctx, netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
	if err != nil || !ipv6 {
		return []socket{first}, err
	}
	second, err := listenAt(ctx, Address6(), fmt.Sprint(first.address().Port()))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, errors.Join(err, first.close())
	case err != nil:
		klog.FromContext(ctx).V(2).Info("The DNS server has no IPv6 address", "reason", err.Error())
		return []socket{first}, nil
	}
	return []socket{first, second}, nil
}

// readPort returns the port in a file, empty if there is none.
func readPort(ctx context.Context, file string) string {
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).Error(err, "Failed to read the port of the DNS server, will use another one")
	}
	text := strings.TrimSpace(string(content))
	if port, err := strconv.ParseUint(text, 10, 16); err != nil || port == 0 {
		return ""
	}
	return text
}

func writePort(file string, port int) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strconv.Itoa(port)+"\n"), 0o600)
}

// listenAt opens a port of an address for TCP and UDP. One of IPv6 need not be there yet.
func listenAt(ctx context.Context, address netip.Addr, port string) (socket, error) {
	var config net.ListenConfig
	if address.Is6() {
		config.Control = anyAddress
	}
	tcp, err := config.Listen(ctx, "tcp", net.JoinHostPort(address.String(), port))
	if err != nil {
		return socket{}, err
	}
	udp, err := config.ListenPacket(ctx, "udp", tcp.Addr().String())
	if err != nil {
		return socket{}, errors.Join(err, tcp.Close())
	}
	return socket{tcp, udp}, nil
}
