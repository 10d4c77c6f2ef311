package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// MayAdministerNetwork reports whether this process, and what it starts, may change
// interfaces, routes and rules of the machine's network (capabilities(7), CAP_NET_ADMIN).
func MayAdministerNetwork() (bool, error) { return HasCapability(unix.CAP_NET_ADMIN) }

// HasCapability reports whether this process has a capability, by its number in
// capabilities(7).
func HasCapability(capability uint) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0, nil
}
