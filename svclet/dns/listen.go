package dns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/klog/v2"
)

// listenAttempts bounds the search for a port that is free for UDP and TCP.
const listenAttempts = 10

// listen opens the port that a file names or, if it names none that is free, another one,
// which it writes to the file.
func listen(ctx context.Context, file string) (net.Listener, net.PacketConn, error) {
	if port := readPort(ctx, file); port != "" {
		if tcp, udp, err := listenAt(ctx, port); err == nil {
			return tcp, udp, nil
		}
	}
	var errs []error
	for range listenAttempts {
		tcp, udp, err := listenAt(ctx, "0")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := writePort(file, tcp.Addr().(*net.TCPAddr).Port); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to keep the port of the DNS server, which will be another one after a restart")
		}
		return tcp, udp, nil
	}
	return nil, nil, fmt.Errorf("open a port for the DNS server: %w", errors.Join(errs...))
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

// listenAt opens a port of the loopback address for TCP and UDP.
func listenAt(ctx context.Context, port string) (net.Listener, net.PacketConn, error) {
	var config net.ListenConfig
	tcp, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, nil, err
	}
	udp, err := config.ListenPacket(ctx, "udp", tcp.Addr().String())
	if err != nil {
		return nil, nil, errors.Join(err, tcp.Close())
	}
	return tcp, udp, nil
}
