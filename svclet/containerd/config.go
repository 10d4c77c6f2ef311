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

	"k8s.io/utils/clock"
)

// The defaults of Config.
const (
	DefaultBridge  = "svc0"
	DefaultPodCIDR = "10.88.0.0/24"
	// DefaultRegistryDir is where containerd's documentation puts what it knows of
	// registries (docs/hosts.md).
	DefaultRegistryDir = "/etc/containerd/certs.d"
)

// Config configures containerd.
type Config struct {
	// Dir has all files of containerd and its CNI plugins. It is created if needed.
	Dir string
	// PassableFrom is the directory above Dir, which the users of pods' user namespaces have
	// to pass; empty if there are none.
	PassableFrom string
	// Programs are the result of [Find].
	Programs Programs
	// SandboxImage is the image of sandboxes. The caller has to import it.
	SandboxImage string
	// SystemdCgroups makes the runtime create cgroups through systemd instead of the
	// cgroup file system.
	SystemdCgroups bool
	// RegistryDir is the directory with a hosts.toml for each registry that has other
	// endpoints than its name; empty for none.
	RegistryDir string
	// Bridge is the network interface of pods, by default svc0. Two containerds on one
	// machine need different ones.
	Bridge string
	// PodCIDRs are the address ranges of this node's pods, at most one of each IP
	// family, until [Runtime.SetPodCIDRs] sets others, which are stored. If it is
	// empty, the ranges in use stay, and at first 10.88.0.0/24 is used.
	PodCIDRs []string
	// PodNetwork is true if another part of the agent connects pods to those of other
	// nodes: it decides by [Runtime.Masquerade] which connections get the machine's
	// address. Otherwise all that leave the machine do.
	PodNetwork bool
	// ServiceProxy is true if another part of the agent leads connections to services to their
	// endpoints: those that it leads to pods of other nodes pass this machine, too.
	ServiceProxy bool
	// AwaitPodCIDRs makes pods wait for [Runtime.SetPodCIDRs] in place of the default of
	// PodCIDRs, which other nodes may have, too.
	AwaitPodCIDRs bool
	// NoHairpin keeps pods from reaching themselves through a Service where the traffic of
	// the bridge is filtered.
	NoHairpin bool
	// Clock is the system clock by default.
	Clock clock.WithTicker
}

// clock returns the configured clock, or the system clock.
func (c Config) clock() clock.WithTicker {
	if c.Clock == nil {
		return clock.RealClock{}
	}
	return c.Clock
}

// Paths in Config.Dir.
func (c Config) root() string       { return filepath.Join(c.Dir, "root") }
func (c Config) configFile() string { return filepath.Join(c.Dir, "config.toml") }
func (c Config) logFile() string    { return filepath.Join(c.Dir, "containerd.log") }
func (c Config) cniDir() string     { return filepath.Join(c.Dir, "cni") }
func (c Config) networkFile() string {
	return filepath.Join(c.cniDir(), "10-svc.conflist")
}

// assignedFile has the ranges that the cluster has assigned. CNI does not read it.
func (c Config) assignedFile() string { return filepath.Join(c.cniDir(), "assigned") }

func (c Config) addressesDir() string { return filepath.Join(c.Dir, "ipam") }
func (c Config) optDir() string       { return filepath.Join(c.Dir, "opt") }

// maxSocketPath is the maximum length of a Unix socket's path, see unix(7),
// without the terminator.
const maxSocketPath = 107

// longestSuffix is the suffix of the second socket that containerd creates.
const longestSuffix = ".ttrpc"

// runDir is the directory of the sockets and of state that does not survive a
// reboot. It is in Dir, unless the path would be too long for sockets.
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

// tablesFile has the tables of nftables that iptables has made for the rules of pods: a family and
// a name in each line. It is kept with what another attempt of a reset needs.
func (c Config) tablesFile() string { return filepath.Join(c.cniDir(), "iptables-tables") }

// Endpoint returns containerd's CRI endpoint, even if it does not run.
func (c Config) Endpoint() string { return "unix://" + c.socket() }

func (c Config) bridge() string { return cmp.Or(c.Bridge, DefaultBridge) }

// maxInterfaceName is IFNAMSIZ without the terminator.
const maxInterfaceName = 15

// Validate returns an error for an invalid configuration.
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
