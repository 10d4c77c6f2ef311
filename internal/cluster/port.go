package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	genericoptions "k8s.io/apiserver/pkg/server/options"
)

// CheckPort returns an error that names the flag if the port cannot be opened, so
// that a command fails before it creates anything. The server opens the port
// later, which may still fail.
func CheckPort(o *genericoptions.SecureServingOptions) error {
	if o.PermitPortSharing || o.PermitAddressSharing {
		return nil
	}
	listener, err := openPort(o)
	if err != nil {
		return err
	}
	return listener.Close()
}

// openPort opens the port. Errors name the flag.
func openPort(o *genericoptions.SecureServingOptions) (net.Listener, error) {
	listener, err := net.Listen(cmp.Or(o.BindNetwork, "tcp"), net.JoinHostPort(o.BindAddress.String(), strconv.Itoa(o.BindPort)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--secure-port: %d is in use: stop what uses it, or choose another port (%w)", o.BindPort, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("--bind-address: %s is not an address of this machine: choose one of its own, or 0.0.0.0 for all (%w)", o.BindAddress, err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("--secure-port: %d is for privileged users: choose a port above 1023 (%w)", o.BindPort, err)
	case err != nil:
		return nil, fmt.Errorf("--bind-address, --secure-port: %w; choose others", err)
	}
	return listener, nil
}
