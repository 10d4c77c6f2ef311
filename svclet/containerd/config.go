package containerd

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"unicode"
)

// Defaults of Config.
const (
	DefaultBridge  = "svc0"
	DefaultPodCIDR = "10.88.0.0/24"
)

// Config says how containerd is to run.
type Config struct {
	// Dir holds all that containerd and its CNI plugins keep. It is created as
	// needed.
	Dir string
	// Programs are what [Find] has found.
	Programs Programs
	// SandboxImage is the name of the image that sandboxes run. Somebody has to
	// import it.
	SandboxImage string
	// SystemdCgroups has systemd make the cgroups of containers. Otherwise they
	// are made in the cgroup filesystem.
	SystemdCgroups bool
	// RegistryDir is a directory with a hosts.toml for each registry that is
	// reached otherwise than by its name; empty for none.
	RegistryDir string
	// Bridge is the network interface to which pods are connected; empty means
	// svc0. Two on one machine need different ones.
	Bridge string
	// PodCIDRs are the addresses of this node's pods, at most one range of each
	// IP family, until [Runtime.SetPodCIDRs] gives it others, which it keeps from
	// then on. Empty keeps those that were in use before, and at first means
	// 10.88.0.0/24.
	PodCIDRs []string
}

// Leavings are where an agent has what Reset takes away.
type Leavings struct {
	// Dir is its root directory, empty if nothing in it is to go.
	Dir string
	// LogsDir is where the logs of its pods are.
	LogsDir string
	// Cgroup is one at the top that holds its pods' and nothing else's; empty
	// if there is none.
	Cgroup string
}

// Paths in Config.Dir.
func (c Config) root() string       { return filepath.Join(c.Dir, "root") }
func (c Config) configFile() string { return filepath.Join(c.Dir, "config.toml") }
func (c Config) logFile() string    { return filepath.Join(c.Dir, "containerd.log") }
func (c Config) cniDir() string     { return filepath.Join(c.Dir, "cni") }
func (c Config) networkFile() string {
	return filepath.Join(c.cniDir(), "10-svc.conflist")
}

// assignedFile has the ranges that the cluster has given. CNI does not read it.
func (c Config) assignedFile() string { return filepath.Join(c.cniDir(), "assigned") }

func (c Config) addressesDir() string { return filepath.Join(c.Dir, "ipam") }
func (c Config) optDir() string       { return filepath.Join(c.Dir, "opt") }

// maxSocketPath is how long the path of a unix socket may be, see unix(7),
// without its terminating zero.
const maxSocketPath = 107

// longestSuffix is of the second socket that containerd makes beside its own.
const longestSuffix = ".ttrpc"

// runDir holds the sockets and what does not outlive the machine. It is in Dir,
// unless that has too long a path for sockets.
func (c Config) runDir() string {
	dir := filepath.Join(c.Dir, "run")
	if len(filepath.Join(dir, socketName)+longestSuffix) <= maxSocketPath {
		return dir
	}
	sum := sha256.Sum256([]byte(c.Dir))
	return filepath.Join("/run/svc", hex.EncodeToString(sum[:8]))
}

const socketName = "containerd.sock"

func (c Config) socket() string   { return filepath.Join(c.runDir(), socketName) }
func (c Config) stateDir() string { return filepath.Join(c.runDir(), "state") }
func (c Config) bootFile() string { return filepath.Join(c.runDir(), "boot-id") }

// Endpoint is containerd's CRI endpoint, whether it runs or not.
func (c Config) Endpoint() string { return "unix://" + c.socket() }

func (c Config) bridge() string { return cmp.Or(c.Bridge, DefaultBridge) }

// maxInterfaceName is IFNAMSIZ without its terminating zero.
const maxInterfaceName = 15

// Validate tells what is wrong with a configuration.
func (c Config) Validate() error {
	if !filepath.IsAbs(c.Dir) {
		return fmt.Errorf("the directory of containerd has to be an absolute path: %q", c.Dir)
	}
	if len(c.bridge()) > maxInterfaceName {
		return fmt.Errorf("the bridge %q has too long a name: at most %d characters are possible", c.bridge(), maxInterfaceName)
	}
	if name := c.bridge(); name == "." || name == ".." || strings.ContainsAny(name, "/:%") || strings.ContainsFunc(name, unicode.IsSpace) {
		return fmt.Errorf("the bridge %q has a name that no network interface can have: use letters, digits and '-'", name)
	}
	families := map[bool]string{}
	for _, cidr := range c.PodCIDRs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return fmt.Errorf("the pods' range %q is not a CIDR, such as %s", cidr, DefaultPodCIDR)
		}
		if other, ok := families[prefix.Addr().Is4()]; ok {
			return fmt.Errorf("the pods' ranges %s and %s are of the same IP family", other, cidr)
		}
		families[prefix.Addr().Is4()] = cidr
	}
	return nil
}
