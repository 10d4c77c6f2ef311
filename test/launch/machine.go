package launch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"svc.dev/svc/svclet/agent"
	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/image/load"
	"svc.dev/svc/svclet/image/pause"
)

// Machine is what a node agent has to itself: a containerd with a network, a
// cgroup and a directory. Agents that shared any of them would take each other's
// pods for strangers, and end them.
type Machine struct {
	// Dir holds all files of it and its agents.
	Dir string
	// Bridge and CIDR are those of its pods. The cgroup that its pods are in has
	// the bridge's name.
	Bridge, CIDR string
	// Log is where containerd logs.
	Log string

	config   containerd.Config
	runtime  *containerd.Runtime
	endpoint string
}

// MachineAt is a machine whose container runtime, at a CRI endpoint, is the
// caller's. Nothing is to be removed of it but the files in dir.
func MachineAt(dir, endpoint string) *Machine { return &Machine{Dir: dir, endpoint: endpoint} }

// NewMachine starts a containerd. The caller ends it with Remove, whether there
// was an error or not.
func NewMachine(ctx context.Context) (*Machine, error) { return NewMachineIn(ctx, "") }

// NewMachineIn is NewMachine with a directory, on a small disk for example, below which all
// files are; empty for that of temporary files.
func NewMachineIn(ctx context.Context, parent string) (*Machine, error) {
	m := &Machine{Bridge: fmt.Sprintf("svct%08x", rand.Uint32())}
	programs, err := containerd.Find(containerd.DefaultSearch())
	if err != nil {
		return m, err
	}
	if m.CIDR, err = FreeCIDR(); err != nil {
		return m, err
	}
	if m.Dir, err = os.MkdirTemp(parent, "svc"); err != nil {
		return m, err
	}
	m.config = containerd.Config{
		Dir: filepath.Join(m.Dir, "containerd"), Programs: programs, SandboxImage: pause.Name,
		Bridge: m.Bridge, PodCIDRs: []string{m.CIDR},
	}
	if err := MakeCgroup(m.Bridge); err != nil {
		return m, err
	}
	if m.runtime, err = agent.StartContainerd(ctx, m.config); err != nil {
		return m, err
	}
	m.Log, m.endpoint = m.runtime.LogFile, m.runtime.Endpoint
	return m, nil
}

// Endpoint is that of its container runtime.
func (m *Machine) Endpoint() string { return m.endpoint }

// CgroupRoot is the cgroup that pods are in.
func (m *Machine) CgroupRoot() string { return "/" + m.Bridge }

// Import gives it images.
func (m *Machine) Import(ctx context.Context, images ...Image) error {
	for _, image := range images {
		file := filepath.Join(m.Dir, "image.tar")
		if err := image.WriteFile(file); err != nil {
			return err
		}
		archive, err := os.Open(file)
		if err != nil {
			return err
		}
		_, err = load.Import(ctx, load.Options{Endpoint: m.Endpoint()}, archive)
		if err := errors.Join(err, archive.Close(), os.Remove(file)); err != nil {
			return fmt.Errorf("import %s: %w", image.Name, err)
		}
	}
	return nil
}

// AgentDir is the root directory of its agents.
func (m *Machine) AgentDir() string { return filepath.Join(m.Dir, "agent") }

// Remove ends its pods and its containerd, and reports what is left of them. Its
// agents must have ended.
func (m *Machine) Remove() error {
	if m.runtime != nil {
		m.runtime.Close()
	}
	if m.config.Dir == "" {
		return os.RemoveAll(m.Dir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	_, err := containerd.Reset(ctx, m.config, containerd.Leavings{Dir: m.AgentDir(), LogsDir: filepath.Join(m.Dir, "logs"), Cgroup: m.Bridge})
	errs := []error{err, Left(m.Dir, m.config.Dir, m.Bridge)}
	if errors.Join(errs...) == nil {
		errs = append(errs, os.RemoveAll(m.Dir))
	}
	return errors.Join(append(errs, awaitNoCgroup(m.Bridge))...)
}

// awaitNoCgroup removes a cgroup, which may take a moment after its last process
// has ended.
func awaitNoCgroup(name string) error {
	var err error
	for end := time.Now().Add(Patience); time.Now().Before(end); {
		if err = RemoveCgroup(name); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// Left returns what there is of a node that should have gone: mounts in dir,
// processes of the containerd in its own directory, the bridge.
func Left(dir, containerdDir, bridge string) error {
	var errs []error
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	errs = append(errs, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir+"/") {
			errs = append(errs, fmt.Errorf("a mount is left: %s", line))
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	errs = append(errs, err)
	for _, file := range processes {
		content, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(content), containerdDir+"/") {
			errs = append(errs, fmt.Errorf("a process is left: %s %s", filepath.Dir(file), strings.ReplaceAll(string(content), "\x00", " ")))
		}
	}
	if _, err := net.InterfaceByName(bridge); err == nil {
		errs = append(errs, fmt.Errorf("the bridge %s is left", bridge))
	}
	if tables, err := exec.Command("nft", "list", "tables").Output(); err == nil && strings.Contains(string(tables), " "+bridge) {
		errs = append(errs, fmt.Errorf("rules of %s are left: %s", bridge, tables))
	}
	return errors.Join(errs...)
}
