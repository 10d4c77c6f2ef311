package containerd

import (
	"fmt"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// settings are the parts of containerd's configuration that depend on the machine.
type settings struct {
	Config
	version     version
	snapshotter string
	// mayLowerScores reports whether containerd may lower OOM scores: whether it
	// has CAP_SYS_RESOURCE.
	mayLowerScores bool
	// hostNetworkOnly reports whether only pods with hostNetwork can run: whether containerd
	// lacks CAP_NET_ADMIN.
	hostNetworkOnly bool
}

// oomScore is containerd's OOM score: kubelet gives the same to itself and to its
// container runtime.
const oomScore = -999

// shimLoadTimeout bounds how long containerd waits at its start for the answer of each shim of
// before. It ends the containers of a shim that has not answered, after five seconds by
// default, which a machine that is busy or short of memory can take.
const shimLoadTimeout = 30 * time.Second

// table is a table of containerd's configuration file.
type table = map[string]any

// toml returns containerd's configuration file: version 2 of the format for
// containerd 1, version 3 for containerd 2.
// See https://github.com/containerd/containerd/blob/main/docs/cri/config.md.
func (s settings) toml() ([]byte, error) {
	plugins := s.criVersion2()
	format := 2
	if s.version.major >= 2 {
		format, plugins = 3, s.criVersion3()
	}
	// The default is a directory in /opt.
	plugins["io.containerd.internal.v1.opt"] = table{"path": s.optDir()}
	// NRI listens on one socket for the whole machine.
	plugins["io.containerd.nri.v1.nri"] = table{"disable": true}
	file := table{
		"version":  format,
		"root":     s.root(),
		"state":    s.stateDir(),
		"grpc":     table{"address": s.socket()},
		"plugins":  plugins,
		"timeouts": table{"io.containerd.timeout.shim.load": shimLoadTimeout.String()},
	}
	if s.mayLowerScores {
		file["oom_score"] = oomScore
	}
	content, err := toml.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("encode containerd's configuration: %w", err)
	}
	return append([]byte("# Written by svc at each start of containerd.\n"), content...), nil
}

func (s settings) criVersion2() table {
	cri := s.criRuntime()
	cri["sandbox_image"] = s.SandboxImage
	cri["registry"] = table{"config_path": s.RegistryDir}
	if s.version.minor >= 7 {
		cri["enable_cdi"] = true // which 2.0 has on by default, and 1.6 does not know
	}
	runtimes := s.runtimes()
	runtimes["snapshotter"] = s.snapshotter
	cri["containerd"] = runtimes
	return table{"io.containerd.grpc.v1.cri": cri}
}

func (s settings) criVersion3() table {
	runtime := s.criRuntime()
	runtime["containerd"] = s.runtimes()
	return table{
		"io.containerd.cri.v1.images": table{
			"snapshotter":   s.snapshotter,
			"pinned_images": table{"sandbox": s.SandboxImage},
			"registry":      table{"config_path": s.RegistryDir},
		},
		"io.containerd.cri.v1.runtime": runtime,
	}
}

// criRuntime returns the CRI plugin's settings that have the same name in both
// versions.
func (s settings) criRuntime() table {
	return table{
		"restrict_oom_score_adj": !s.mayLowerScores,
		// In /var/run/netns, network namespaces of several containerds would mix.
		"netns_mounts_under_state_dir": true,
		"cni":                          s.cni(),
	}
}

func (s settings) cni() table {
	cni := table{"conf_dir": s.cniDir()}
	if s.version.major > 2 || s.version.major == 2 && s.version.minor >= 1 {
		cni["bin_dirs"] = []string{s.Programs.PluginDir}
	} else {
		cni["bin_dir"] = s.Programs.PluginDir
	}
	return cni
}

func (s settings) runtimes() table {
	return table{
		"default_runtime_name": "runc",
		"runtimes": table{"runc": table{
			"runtime_type": "io.containerd.runc.v2",
			"options":      table{"BinaryName": s.Programs.Runc, "SystemdCgroup": s.SystemdCgroups},
		}},
	}
}
