package containerd

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"svc.dev/svc/svclet/host"
)

// lockBridge locks the bridge of pods for this process, until the lock is closed or the
// process ends. Two containerds with one bridge would give pods the same addresses and
// replace each other's rules. The lock is a socket with an abstract name (unix(7)): like
// the bridge, its name is of the network namespace. It returns nil if this process may not
// change the network, and an error with the remedy if another process has the lock.
func lockBridge(name, remedy string) (io.Closer, error) {
	if may, err := host.MayAdministerNetwork(); !may || err != nil {
		return nil, err
	}
	lock, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: "@svclet/bridge/" + name})
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("the network bridge %s is in use by another svclet with a containerd of its own: %s", name, remedy)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the network bridge %s: %w", name, err)
	}
	return lock, nil
}
