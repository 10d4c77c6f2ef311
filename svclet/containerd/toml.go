package containerd

import (
	"fmt"
	"strings"
)

// settings are those of the configuration that depend on the machine.
type settings struct {
	Config
	version     version
	snapshotter string
	// mayLowerScores says whether a process may be protected from the kernel's
	// out-of-memory killer: whether there is CAP_SYS_RESOURCE.
	mayLowerScores bool
}

// oomScore is that of containerd: kubelet's for itself and its runtime.
const oomScore = -999

// table is a table of a TOML file, in the order in which it is written.
type table struct {
	name   string
	values []value
}

type value struct {
	key   string
	value any // bool, int, string or []string
}

// toml is containerd's configuration file: of version 2 for containerd 1, of
// version 3 for containerd 2.
func (s settings) toml() string {
	format, cri := 2, s.criVersion2()
	if s.version.major >= 2 {
		format, cri = 3, s.criVersion3()
	}
	head := []value{{"version", format}, {"root", s.root()}, {"state", s.stateDir()}}
	if s.mayLowerScores {
		head = append(head, value{"oom_score", oomScore})
	}
	tables := []table{
		{"", head},
		{"grpc", []value{{"address", s.socket()}}},
		// Its default is a directory in /opt.
		{`plugins."io.containerd.internal.v1.opt"`, []value{{"path", s.optDir()}}},
		// It would listen at one socket for the whole machine.
		{`plugins."io.containerd.nri.v1.nri"`, []value{{"disable", true}}},
	}
	var out strings.Builder
	out.WriteString("# Written by svc at each start of containerd.\n")
	for _, t := range append(tables, cri...) {
		if t.name != "" {
			fmt.Fprintf(&out, "\n[%s]\n", t.name)
		}
		for _, v := range t.values {
			fmt.Fprintf(&out, "%s = %s\n", v.key, encoded(v.value))
		}
	}
	return out.String()
}

func encoded(value any) string {
	switch v := value.(type) {
	case string:
		return quoted(v)
	case []string:
		items := make([]string, len(v))
		for i, item := range v {
			items[i] = quoted(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	default:
		return fmt.Sprint(v)
	}
}

// quoted is a basic string of TOML.
func quoted(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return out.String()
}

func (s settings) criVersion2() []table {
	const cri = `plugins."io.containerd.grpc.v1.cri"`
	return append([]table{
		{cri, append([]value{{"sandbox_image", s.SandboxImage}}, s.criRuntime()...)},
		{cri + ".cni", s.cni()},
		{cri + ".registry", []value{{"config_path", s.RegistryDir}}},
	}, s.runtimes(cri, value{"snapshotter", s.snapshotter})...)
}

func (s settings) criVersion3() []table {
	const (
		images  = `plugins."io.containerd.cri.v1.images"`
		runtime = `plugins."io.containerd.cri.v1.runtime"`
	)
	return append([]table{
		{images, []value{{"snapshotter", s.snapshotter}}},
		{images + ".pinned_images", []value{{"sandbox", s.SandboxImage}}},
		{images + ".registry", []value{{"config_path", s.RegistryDir}}},
		{runtime, s.criRuntime()},
		{runtime + ".cni", s.cni()},
	}, s.runtimes(runtime)...)
}

func (s settings) criRuntime() []value {
	return []value{
		{"restrict_oom_score_adj", !s.mayLowerScores},
		// Not in /var/run/netns, where nobody could tell whose they are.
		{"netns_mounts_under_state_dir", true},
	}
}

func (s settings) cni() []value {
	plugins := value{"bin_dir", s.Programs.PluginDir}
	if s.version.major > 2 || s.version.major == 2 && s.version.minor >= 1 {
		plugins = value{"bin_dirs", []string{s.Programs.PluginDir}}
	}
	return []value{plugins, {"conf_dir", s.cniDir()}}
}

func (s settings) runtimes(plugin string, further ...value) []table {
	return []table{
		{plugin + ".containerd", append([]value{{"default_runtime_name", "runc"}}, further...)},
		{plugin + ".containerd.runtimes.runc", []value{{"runtime_type", "io.containerd.runc.v2"}}},
		{plugin + ".containerd.runtimes.runc.options", []value{{"BinaryName", s.Programs.Runc}, {"SystemdCgroup", s.SystemdCgroups}}},
	}
}
