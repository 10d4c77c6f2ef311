package containerd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"svc.dev/svc/svclet/checkpoint"
)

// cniVersion is the newest version that the CNI plugins of current distributions
// support.
const cniVersion = "0.4.0"

// ResultsDir is the directory of CNI's results: a file for each pod, whose name begins with
// that of its network, which is the bridge.
const ResultsDir = "/var/lib/cni/results"

// network is a CNI configuration list. Its fields are those of
// https://www.cni.dev/plugins/current/main/bridge/ and related plugins.
type network struct {
	CNIVersion string   `json:"cniVersion"`
	Name       string   `json:"name"`
	Plugins    []plugin `json:"plugins"`
}

type plugin struct {
	Type         string          `json:"type"`
	Bridge       string          `json:"bridge,omitempty"`
	IsGateway    bool            `json:"isGateway,omitempty"`
	ForceAddress bool            `json:"forceAddress,omitempty"`
	HairpinMode  bool            `json:"hairpinMode,omitempty"`
	MTU          int             `json:"mtu,omitempty"`
	IPAM         *ipam           `json:"ipam,omitempty"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
	SNAT         bool            `json:"snat,omitempty"`
}

type ipam struct {
	Type    string    `json:"type"`
	DataDir string    `json:"dataDir"`
	Ranges  [][]scope `json:"ranges"`
	Routes  []route   `json:"routes"`
}

type scope struct {
	Subnet string `json:"subnet"`
}

type route struct {
	Destination string `json:"dst"`
}

// network returns the configuration for pods with addresses of the given ranges, whose
// interfaces have an MTU in bytes; 0 means the kernel's default.
func (c Config) network(cidrs []string, mtu int) network {
	addresses := &ipam{Type: "host-local", DataDir: c.addressesDir()}
	for _, cidr := range cidrs {
		addresses.Ranges = append(addresses.Ranges, []scope{{cidr}})
		all := "0.0.0.0/0"
		if prefix, err := netip.ParsePrefix(cidr); err == nil && prefix.Addr().Is6() {
			all = "::/0"
		}
		addresses.Routes = append(addresses.Routes, route{all})
	}
	n := network{CNIVersion: cniVersion, Name: c.bridge(), Plugins: []plugin{
		{Type: "bridge", Bridge: c.bridge(), IsGateway: true, ForceAddress: true, HairpinMode: !c.NoHairpin, MTU: mtu, IPAM: addresses},
	}}
	if c.hasHostPorts() {
		n.Plugins = append(n.Plugins, plugin{Type: portmap, Capabilities: map[string]bool{"portMappings": true}, SNAT: true})
	}
	return n
}

// hasHostPorts reports whether the programs for host ports exist.
func (c Config) hasHostPorts() bool {
	return c.Programs.IPTables != "" && executable(filepath.Join(c.Programs.PluginDir, portmap))
}

// cidrs returns the address ranges of a configuration.
func (n network) cidrs() []string {
	var cidrs []string
	for _, p := range n.Plugins {
		if p.IPAM == nil {
			continue
		}
		for _, set := range p.IPAM.Ranges {
			for _, s := range set {
				cidrs = append(cidrs, s.Subnet)
			}
		}
	}
	return cidrs
}

// mtu returns the MTU of a configuration.
func (n network) mtu() int {
	for _, p := range n.Plugins {
		if p.MTU != 0 {
			return p.MTU
		}
	}
	return 0
}

// writeNetwork writes the CNI configuration if it has changed, and returns the
// previous and the new ranges. An MTU of 0 means the previous one. Without ranges there
// is no configuration, and pods wait.
func (c Config) writeNetwork(mtu int) (before, after []string, err error) {
	if before, after, err = c.ranges(); err != nil || len(after) == 0 {
		return nil, nil, err
	}
	if mtu == 0 {
		old, err := c.readNetwork()
		if err != nil {
			return nil, nil, err
		}
		mtu = old.mtu()
	}
	content, err := json.MarshalIndent(c.network(after, mtu), "", "  ")
	if err != nil {
		return nil, nil, fmt.Errorf("encode the CNI configuration: %w", err)
	}
	_, err = replaceFile(c.networkFile(), append(content, '\n'))
	return before, after, err
}

// Ranges returns the address ranges that pods get when containerd is started.
func (c Config) Ranges() ([]string, error) {
	_, after, err := c.ranges()
	return after, err
}

// ranges returns the ranges in the CNI configuration, and the new ones. These are
// the first of: those assigned by the cluster, those of c, the previous ones, the
// default, or none if pods wait.
func (c Config) ranges() (before, after []string, err error) {
	old, err := c.readNetwork()
	if err != nil {
		return nil, nil, err
	}
	assigned, err := os.ReadFile(c.assignedFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("read which addresses the cluster has given: %w", err)
	}
	before = old.cidrs()
	last := []string{DefaultPodCIDR}
	if c.AwaitPodCIDRs {
		last = nil
	}
	for _, cidrs := range [][]string{strings.Fields(string(assigned)), c.PodCIDRs, before, last} {
		if len(after) == 0 {
			after = cidrs
		}
	}
	return before, after, nil
}

// assign stores the ranges that the cluster has assigned.
func (c Config) assign(cidrs []string) error {
	_, err := replaceFile(c.assignedFile(), []byte(strings.Join(cidrs, "\n")+"\n"))
	return err
}

// readNetwork returns an empty network if there is no configuration yet.
func (c Config) readNetwork() (network, error) {
	content, err := os.ReadFile(c.networkFile())
	// A power failure may have left a file that was not synced empty.
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(content) == 0 {
		return network{}, nil
	}
	if err != nil {
		return network{}, fmt.Errorf("read the CNI configuration: %w", err)
	}
	var n network
	if err := json.Unmarshal(content, &n); err != nil {
		return network{}, fmt.Errorf("%s is damaged: remove it and start again, which writes it (%w)", c.networkFile(), err)
	}
	return n, nil
}

// replaceFile replaces a file atomically, also if the power fails, and reports whether its
// content has changed.
func replaceFile(path string, content []byte) (changed bool, err error) {
	before, err := os.ReadFile(path)
	if err == nil && string(before) == string(content) {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	// CNI reads all files in its directory that end in .conf, .conflist or .json: the name of a
	// temporary file ends in digits.
	return true, checkpoint.Replace(path, content)
}
