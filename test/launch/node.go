package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"svc.dev/svc/svclet/containerd"
)

// Node is a running `svc up` whose machine is a node, with a containerd of its
// own, and nothing that it shares with another on the same machine.
type Node struct {
	*Server
	// Bridge and CIDR are those of its pods.
	Bridge, CIDR string

	dataDir string
	flags   []string
}

// WhyNoNode returns why this machine cannot be a node, or "".
func WhyNoNode() string {
	if runtime.GOOS != "linux" {
		return "only Linux runs pods"
	}
	if os.Geteuid() != 0 {
		return "only root can run pods"
	}
	if _, err := containerd.Find(containerd.DefaultSearch()); err != nil {
		return err.Error()
	}
	return ""
}

// UpNode starts `svc up --node=true` with further flags, and returns when the
// API server is ready. The caller ends it with Remove, also after an error.
func UpNode(ctx context.Context, dataDir string, flags ...string) (*Node, error) {
	n := &Node{Bridge: fmt.Sprintf("svct%08x", rand.Uint32()), dataDir: dataDir}
	var err error
	if n.CIDR, err = FreeCIDR(); err != nil {
		return n, err
	}
	n.flags = append([]string{
		"--node=true", "--node-bridge=" + n.Bridge, "--pod-cidr=" + n.CIDR,
		"--node-port=0", "--node-healthz-port=0", "--cgroup-root=/" + n.Bridge,
	}, flags...)
	if err := MakeCgroup(n.Bridge); err != nil {
		return n, err
	}
	n.Server, err = Up(ctx, dataDir, n.flags...)
	return n, err
}

// Again starts `svc up` again, at another port, after it has ended in whatever
// way.
func (n *Node) Again(ctx context.Context) (err error) {
	n.Server, err = Up(ctx, n.dataDir, n.flags...)
	return err
}

// ContainerdDir is where its containerd keeps what it has.
func (n *Node) ContainerdDir() string { return filepath.Join(n.dataDir, "containerd") }

// LogsDir is where the logs of its pods are.
func (n *Node) LogsDir() string { return filepath.Join(n.DataDir, "svclet", "log", "pods") }

// Endpoint is that of its containerd.
func (n *Node) Endpoint() string {
	return containerd.Config{Dir: n.ContainerdDir()}.Endpoint()
}

// Remove ends svc up, its pods and its containerd, and reports what is left of
// them. It may be called again.
func (n *Node) Remove() error {
	var errs []error
	if n.Server != nil {
		_, err := n.Stop(Patience)
		errs = append(errs, err)
	}
	if _, err := os.Stat(n.dataDir); err == nil {
		_, err := n.Reset()
		errs = append(errs, err)
	}
	errs = append(errs, Left(n.dataDir, n.ContainerdDir(), n.Bridge), RemoveCgroup(n.Bridge))
	return errors.Join(errs...)
}

// Reset runs `svc node reset`, and returns what it prints.
func (n *Node) Reset() (string, error) {
	svc, err := Binary()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, svc, "node", "reset", "--data-dir="+n.dataDir).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("svc node reset: %w\n%s", err, out)
	}
	return string(out), nil
}

// cgroupRoot is where cgroups are: all in one hierarchy, or one for each
// controller.
const cgroupRoot = "/sys/fs/cgroup"

// MakeCgroup creates a cgroup at the top, in each hierarchy.
func MakeCgroup(name string) error {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return os.Mkdir(filepath.Join(cgroupRoot, name), 0o755)
	}
	hierarchies, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return err
	}
	for _, hierarchy := range hierarchies {
		if !hierarchy.IsDir() {
			continue // a link to a hierarchy of two controllers
		}
		if err := os.Mkdir(filepath.Join(cgroupRoot, hierarchy.Name(), name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// RemoveCgroup removes a cgroup at the top, and those in it.
func RemoveCgroup(name string) error {
	var errs []error
	for _, pattern := range []string{filepath.Join(cgroupRoot, name), filepath.Join(cgroupRoot, "*", name)} {
		tops, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, top := range tops {
			var found []string
			errs = append(errs, filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					found = append(found, path)
				}
				return err
			}))
			for _, dir := range slices.Backward(found) {
				errs = append(errs, os.Remove(dir))
			}
		}
	}
	return errors.Join(errs...)
}

// FreeCIDR is a range of addresses that no interface of this machine has, and no service
// of Kube.
func FreeCIDR() (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for range 1000 {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(97 + rand.IntN(95)), byte(rand.IntN(256)), 0}), 24)
		taken := false
		for _, addr := range addrs {
			if used, err := netip.ParsePrefix(addr.String()); err == nil && used.Overlaps(prefix) {
				taken = true
			}
		}
		if !taken {
			return prefix.String(), nil
		}
	}
	return "", errors.New("all ranges from 10.97.0.0/24 to 10.191.255.0/24 are in use")
}
