package containerd

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
)

var node = Config{
	Dir:          "/var/lib/svc/containerd",
	Programs:     Programs{Containerd: "/usr/bin/containerd", Runc: "/usr/sbin/runc", PluginDir: "/usr/lib/cni", IPTables: "/usr/sbin/iptables"},
	SandboxImage: "localhost/svc/pause:1",
	RegistryDir:  `/etc/registries "of mine"`,
}

func TestTheConfigurationsFormatMatchesContainerdsVersion(t *testing.T) {
	for file, s := range map[string]settings{
		"1.6.toml": {Config: node, version: version{"1.6.20", 1, 6}, snapshotter: "overlayfs"},
		"1.7.toml": {Config: node, version: version{"1.7.28", 1, 7}, snapshotter: "overlayfs"},
		"2.0.toml": {Config: node, version: version{"2.0.0", 2, 0}, snapshotter: "native", mayLowerScores: true},
		"2.4.toml": {Config: node, version: version{"2.4.2", 2, 4}, snapshotter: "overlayfs", mayLowerScores: true},
	} {
		content, err := s.toml()
		if err != nil {
			t.Fatal(err)
		}
		golden.AssertBytes(t, content, file)
	}
}

func TestTheNetworkOfPodsIsABridge(t *testing.T) {
	withoutIPTables := node
	withoutIPTables.Programs.IPTables = ""
	bin := t.TempDir()
	makeExecutables(t, bin, portmap)
	complete := node
	complete.Programs.PluginDir = bin
	for file, n := range map[string]network{
		"network.json":           complete.network([]string{"10.88.0.0/24"}, 0),
		"network-dualstack.json": complete.network([]string{"10.88.0.0/24", "fd00:88::/64"}, 1450),
		"network-bare.json":      withoutIPTables.network([]string{"10.88.0.0/24"}, 0),
	} {
		content, err := json.MarshalIndent(n, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden.Assert(t, string(content)+"\n", file)
	}
}

func TestPodsReachThemselvesUnlessHairpinsAreTurnedOff(t *testing.T) {
	for _, off := range []bool{false, true} {
		if got := (Config{NoHairpin: off}).network([]string{"10.88.0.0/24"}, 0).Plugins[0].HairpinMode; got == off {
			t.Errorf("with NoHairpin %t the bridge has hairpinMode %t", off, got)
		}
	}
}

func TestNetworkRangesAreKeptUntilOthersAreSet(t *testing.T) {
	config := Config{Dir: t.TempDir()}
	if err := os.MkdirAll(config.cniDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		assigned, given, before, after string
	}{
		{"", "", "", "10.88.0.0/24"},
		{"", "10.1.0.0/24", "10.88.0.0/24", "10.1.0.0/24"},
		{"", "", "10.1.0.0/24", "10.1.0.0/24"},
		{"", "10.1.0.0/24,fd00::/64", "10.1.0.0/24", "10.1.0.0/24,fd00::/64"},
		{"10.2.0.0/24,fd02::/64", "10.2.0.0/24,fd02::/64", "10.1.0.0/24,fd00::/64", "10.2.0.0/24,fd02::/64"},
		{"", "10.1.0.0/24", "10.2.0.0/24,fd02::/64", "10.2.0.0/24,fd02::/64"},
	} {
		if step.assigned != "" {
			if err := config.assign(strings.Split(step.assigned, ",")); err != nil {
				t.Fatal(err)
			}
		}
		config.PodCIDRs = nil
		if step.given != "" {
			config.PodCIDRs = strings.Split(step.given, ",")
		}
		will, err := config.Ranges()
		if err != nil {
			t.Fatal(err)
		}
		before, after, err := config.writeNetwork(0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(will, after) {
			t.Errorf("%v were said to be next, and are not: %v", will, after)
		}
		if strings.Join(before, ",") != step.before || strings.Join(after, ",") != step.after {
			t.Errorf("given %q: from %v to %v", step.given, before, after)
		}
	}
	files, err := os.ReadDir(config.cniDir())
	if err != nil || len(files) != 2 { // the network, and what was assigned
		t.Errorf("the directory of CNI holds %v (%v)", files, err)
	}
}

func TestPodsWaitForTheAddressesThatTheClusterAssigns(t *testing.T) {
	config := Config{Dir: t.TempDir(), AwaitPodCIDRs: true}
	if err := os.MkdirAll(config.cniDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, after, err := config.writeNetwork(1450); err != nil || len(after) > 0 {
		t.Fatal(after, err)
	}
	if _, err := os.Stat(config.networkFile()); !errors.Is(err, fs.ErrNotExist) {
		t.Error("pods have a network before the cluster has assigned addresses", err)
	}
	if err := config.assign([]string{"10.88.3.0/24"}); err != nil {
		t.Fatal(err)
	}
	for _, mtu := range []int{1450, 0} { // 0: that of before
		if _, _, err := config.writeNetwork(mtu); err != nil {
			t.Fatal(err)
		}
		n, err := config.readNetwork()
		if err != nil || n.mtu() != 1450 || !slices.Equal(n.cidrs(), []string{"10.88.3.0/24"}) {
			t.Error(n, err)
		}
	}
}

func TestADamagedNetworkFileIsNamed(t *testing.T) {
	config := Config{Dir: t.TempDir()}
	if err := os.MkdirAll(config.cniDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config.networkFile(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := config.writeNetwork(0)
	if err == nil || !strings.Contains(err.Error(), config.networkFile()+" is damaged: remove it") {
		t.Error(err)
	}
}

func TestAnEmptyNetworkFileIsWrittenAgain(t *testing.T) {
	config := Config{Dir: t.TempDir()}
	if err := os.MkdirAll(config.cniDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{config.networkFile(), config.assignedFile()} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, after, err := config.writeNetwork(0); err != nil || !slices.Equal(after, []string{DefaultPodCIDR}) {
		t.Fatal(after, err)
	}
	if n, err := config.readNetwork(); err != nil || !slices.Equal(n.cidrs(), []string{DefaultPodCIDR}) {
		t.Error(n, err)
	}
}

func TestSocketPathsAreShortEnough(t *testing.T) {
	short := Config{Dir: "/var/lib/svc/containerd"}
	if got := short.Endpoint(); got != "unix:///var/lib/svc/containerd/run/containerd.sock" {
		t.Error(got)
	}
	long := Config{Dir: "/" + strings.Repeat("d", 81)}
	if got := long.socket(); !strings.HasPrefix(got, "/run/svc/") || len(got)+len(longestSuffix) > maxSocketPath {
		t.Error(got)
	}
	other := Config{Dir: "/" + strings.Repeat("e", 81)}
	if long.runDir() == other.runDir() {
		t.Error("two directories share their sockets")
	}
	fits := Config{Dir: "/" + strings.Repeat("d", 80)}
	if got := fits.socket() + longestSuffix; len(got) != maxSocketPath || !strings.HasPrefix(got, fits.Dir) {
		t.Errorf("%s has %d bytes", got, len(got))
	}
}

func TestValidationErrorsNameTheMistake(t *testing.T) {
	for _, tc := range []struct {
		config Config
		want   string
	}{
		{Config{Dir: "containerd"}, `the directory of containerd has to be an absolute path: "containerd"`},
		{Config{Dir: "/", Bridge: "a-very-long-name"}, `the bridge "a-very-long-name" has too long a name: at most 15 characters are possible`},
		{Config{Dir: "/", Bridge: "a/b"}, `the bridge "a/b" has a name that no network interface can have: use letters, digits and '-'`},
		{Config{Dir: "/", PodCIDRs: []string{"10.0.0.0"}}, `the pods' range "10.0.0.0" is not a CIDR, such as 10.88.0.0/24`},
		{Config{Dir: "/", PodCIDRs: []string{"10.0.0.0/24", "10.0.1.0/24"}}, "the pods' ranges 10.0.0.0/24 and 10.0.1.0/24 are of the same IP family"},
	} {
		if err := tc.config.Validate(); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
}

func makeExecutables(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMissingProgramsAreOneLineThatSaysHowToInstallThem(t *testing.T) {
	for _, tc := range []struct {
		name         string
		programs     []string
		plugins      []string
		want         string
		withIPTables bool
	}{
		{"everything", nil, nil, "containerd, runc and the set of CNI plugins are missing: apt-get install containerd runc containernetworking-plugins (on Debian and Ubuntu; other systems name the packages alike)", false},
		{"one", []string{"containerd", "iptables"}, plugins, "runc is missing: apt-get install runc (on Debian and Ubuntu; other systems name the packages alike)", false},
		{"a plugin", []string{"containerd", "runc"}, plugins[1:], "the set of CNI plugins is missing", false},
		{"nothing", []string{"containerd", "runc"}, plugins, "", false},
		{"nothing at all", []string{"containerd", "runc", "iptables"}, plugins, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bin, lib := t.TempDir(), t.TempDir()
			makeExecutables(t, bin, tc.programs...)
			makeExecutables(t, lib, tc.plugins...)
			found, err := Find(Search{Dirs: []string{"", "relative", t.TempDir(), bin}, PluginDirs: []string{lib}})
			if tc.want != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
					t.Errorf("got %v, want %s", err, tc.want)
				}
				return
			}
			want := Programs{Containerd: filepath.Join(bin, "containerd"), Runc: filepath.Join(bin, "runc"), PluginDir: lib}
			if tc.withIPTables {
				want.IPTables = filepath.Join(bin, "iptables")
			}
			if err != nil || found != want {
				t.Errorf("found %+v, %v", found, err)
			}
		})
	}
}

func TestContainerdVersionsAreParsed(t *testing.T) {
	for out, want := range map[string]version{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n": {"1.6.20~ds1", 1, 6},
		"containerd github.com/containerd/containerd v1.7.27 05044ec0a9a75232\n":        {"1.7.27", 1, 7},
		"containerd github.com/containerd/containerd/v2 2.4.2+unknown \n":               {"2.4.2+unknown", 2, 4},
		"v2.0.0-rc.1": {"2.0.0-rc.1", 2, 0},
	} {
		if got, err := parseVersion(out); err != nil || got != want {
			t.Errorf("%q: got %+v, %v", out, got, err)
		}
	}
	for out, want := range map[string]string{
		"containerd 1.5.9 x":       "containerd is of version 1.5.9, and 1.6 is the first that will do: install a newer one",
		"no such option: version?": "no version is in that",
	} {
		if _, err := parseVersion(out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", out, err, want)
		}
	}
}

func TestEachAddressRangeHasItsIPTablesRules(t *testing.T) {
	var lines []string
	ranges := []string{"10.88.0.7/24", "fd00::/64"}
	for _, r := range slices.Concat(masqueradeRules("svc0", ranges), forwardRules("svc0", ranges), serviceRules("svc0", ranges)) {
		program := "iptables"
		if r.v6 {
			program = "ip6tables"
		}
		lines = append(lines, strings.Join(append([]string{program, "-t", r.table, r.chain}, r.args...), " "))
	}
	if want := []string{
		"iptables -t nat POSTROUTING -s 10.88.0.0/24 ! -o svc0 -j MASQUERADE",
		"ip6tables -t nat POSTROUTING -s fd00::/64 ! -o svc0 -j MASQUERADE",
		"iptables -t filter FORWARD -i svc0 -j ACCEPT",
		"iptables -t filter FORWARD -o svc0 -j ACCEPT",
		"ip6tables -t filter FORWARD -i svc0 -j ACCEPT",
		"ip6tables -t filter FORWARD -o svc0 -j ACCEPT",
		"iptables -t filter FORWARD -m mark --mark 0x4000/0x4000 -m comment --comment svc0-services -j ACCEPT",
		"iptables -t filter FORWARD -m conntrack --ctstate DNAT -m conntrack --ctstate RELATED,ESTABLISHED -m comment --comment svc0-services -j ACCEPT",
		"ip6tables -t filter FORWARD -m mark --mark 0x4000/0x4000 -m comment --comment svc0-services -j ACCEPT",
		"ip6tables -t filter FORWARD -m conntrack --ctstate DNAT -m conntrack --ctstate RELATED,ESTABLISHED -m comment --comment svc0-services -j ACCEPT",
	}; !slices.Equal(lines, want) {
		t.Errorf("got\n%s", strings.Join(lines, "\n"))
	}
}
