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
)

// cniVersion is the newest that the CNI plugins of distributions still in use
// know.
const cniVersion = "0.4.0"

// network is what a CNI configuration list says. Its fields are those of
// https://www.cni.dev/plugins/current/main/bridge/ and of the plugins beside it.
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

// network is that of pods with addresses of the given ranges.
func (c Config) network(cidrs []string) network {
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
		{Type: "bridge", Bridge: c.bridge(), IsGateway: true, ForceAddress: true, HairpinMode: true, IPAM: addresses},
	}}
	if c.hasHostPorts() {
		n.Plugins = append(n.Plugins, plugin{Type: portmap, Capabilities: map[string]bool{"portMappings": true}, SNAT: true})
	}
	return n
}

// hasHostPorts tells whether the programs are there that host ports take.
func (c Config) hasHostPorts() bool {
	return c.Programs.IPTables != "" && executable(filepath.Join(c.Programs.PluginDir, portmap))
}

// cidrs are the ranges in a network's configuration.
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

// writeNetwork writes the CNI configuration, if it changes, and returns the
// ranges that were in it and that are in it now.
func (c Config) writeNetwork() (before, after []string, err error) {
	if before, after, err = c.ranges(); err != nil {
		return nil, nil, err
	}
	content, err := json.MarshalIndent(c.network(after), "", "  ")
	if err != nil {
		return nil, nil, fmt.Errorf("encode the CNI configuration: %w", err)
	}
	_, err = replaceFile(c.networkFile(), append(content, '\n'))
	return before, after, err
}

// Ranges are those of which pods get their addresses when containerd is started.
func (c Config) Ranges() ([]string, error) {
	_, after, err := c.ranges()
	return after, err
}

// ranges are those in the CNI configuration, and those that are to be. These
// are, in this order: those that the cluster has given, those of c, those that
// are in it, the default.
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
	for _, cidrs := range [][]string{strings.Fields(string(assigned)), c.PodCIDRs, before, {DefaultPodCIDR}} {
		if len(after) == 0 {
			after = cidrs
		}
	}
	return before, after, nil
}

// assign keeps the ranges that the cluster has given.
func (c Config) assign(cidrs []string) error {
	_, err := replaceFile(c.assignedFile(), []byte(strings.Join(cidrs, "\n")+"\n"))
	return err
}

// readNetwork returns nothing when there is no configuration yet.
func (c Config) readNetwork() (network, error) {
	content, err := os.ReadFile(c.networkFile())
	if errors.Is(err, fs.ErrNotExist) {
		return network{}, nil
	}
	if err != nil {
		return network{}, fmt.Errorf("read the CNI configuration: %w", err)
	}
	var n network
	if err := json.Unmarshal(content, &n); err != nil {
		return network{}, fmt.Errorf("%s is damaged: remove it to have it written anew (%w)", c.networkFile(), err)
	}
	return n, nil
}

// replaceFile writes a file as a whole or not at all, and tells whether its
// content has changed.
func replaceFile(path string, content []byte) (changed bool, err error) {
	before, err := os.ReadFile(path)
	if err == nil && string(before) == string(content) {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	// CNI reads all files of its directory that end in .conf, .conflist or .json.
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return false, err
	}
	return true, os.Rename(temporary, path)
}
