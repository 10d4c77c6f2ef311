package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/component-helpers/node/util/sysctl"
	"k8s.io/utils/cpuset"
)

// Options are the requirements. Fields for flags are named after them.
type Options struct {
	// Root is the root of the machine's file system, "/" if empty.
	Root string
	// FailSwapOn refuses a machine with swap, FailCgroupV1 one with cgroup v1.
	FailSwapOn, FailCgroupV1 bool
	// ProtectKernelDefaults refuses a machine with unsuitable kernel settings. Without
	// it, they are changed.
	ProtectKernelDefaults bool
	// KillWholeContainers reports that singleProcessOOMKill is false, which cgroup v1
	// does not support.
	KillWholeContainers bool
	// ReservedCPUs is --reserved-cpus; these CPUs must exist.
	ReservedCPUs string

	// OOMScoreAdj and MaxOpenFiles are set for the process itself.
	OOMScoreAdj  int32
	MaxOpenFiles int64
	// Cgroup is the cgroup of the process, empty to leave it where it is
	// (--svclet-cgroups).
	Cgroup string
}

func (o Options) path(name string) string {
	if o.Root == "" {
		return "/" + name
	}
	return filepath.Join(o.Root, name)
}

// Check returns all reasons why an agent must not run on this machine. It changes
// nothing.
func Check(o Options) error {
	var problems []error
	for _, check := range []func(Options) error{swapIsOff, cgroupVersionFits, kernelIsAsNeeded, reservedCPUsExist} {
		problems = append(problems, check(o))
	}
	return errors.Join(problems...)
}

// swapIsOff is document 3 section 7 rule 1.
func swapIsOff(o Options) error {
	if !o.FailSwapOn {
		return nil
	}
	swaps, err := os.ReadFile(o.path("proc/swaps"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without swap
	}
	if err != nil {
		return fmt.Errorf("find out whether the host swaps: %w", err)
	}
	// The first line is the header.
	if _, areas, _ := strings.Cut(strings.TrimSpace(string(swaps)), "\n"); areas != "" {
		area, _, _ := strings.Cut(areas, " ")
		return fmt.Errorf("the host swaps to %s: turn it off with swapoff -a, or set failSwapOn (--fail-swap-on) to false", area)
	}
	return nil
}

func cgroupVersionFits(o Options) error {
	_, err := os.Stat(o.path("sys/fs/cgroup/cgroup.controllers"))
	switch v1 := errors.Is(err, fs.ErrNotExist); {
	case v1 && o.FailCgroupV1:
		return errors.New("the host has cgroup v1: move it to v2, or set failCgroupV1 to false")
	case v1 && o.KillWholeContainers:
		return errors.New("singleProcessOOMKill is false: cgroup v1, which the host has, cannot kill a container as a whole; leave it out")
	}
	return nil
}

func reservedCPUsExist(o Options) error {
	if o.ReservedCPUs == "" {
		return nil
	}
	reserved, err := cpuset.Parse(o.ReservedCPUs)
	if err != nil {
		return fmt.Errorf("reservedSystemCPUs (--reserved-cpus): %w", err)
	}
	text, err := os.ReadFile(o.path("sys/devices/system/cpu/online"))
	if err != nil {
		return fmt.Errorf("find out which CPUs there are: %w", err)
	}
	online, err := cpuset.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("find out which CPUs there are: %w", err)
	}
	if !reserved.IsSubsetOf(online) {
		return fmt.Errorf("reservedSystemCPUs (--reserved-cpus) is %s: must be some of the host's CPUs, %s", o.ReservedCPUs, online)
	}
	return nil
}

// tunable is a kernel setting, by its path below /proc/sys, and its required
// value.
type tunable struct {
	name string
	want int
}

// tunables returns kubelet's tunables.
func tunables() []tunable {
	return []tunable{
		{sysctl.VMOvercommitMemory, sysctl.VMOvercommitMemoryAlways},
		{sysctl.VMPanicOnOOM, sysctl.VMPanicOnOOMInvokeOOMKiller},
		{sysctl.KernelPanic, sysctl.KernelPanicRebootTimeout},
		{sysctl.KernelPanicOnOops, sysctl.KernelPanicOnOopsAlways},
		{sysctl.RootMaxKeys, sysctl.RootMaxKeysSetting},
		{sysctl.RootMaxBytes, sysctl.RootMaxBytesSetting},
	}
}

func (t tunable) path(o Options) string { return filepath.Join(o.path("proc/sys"), t.name) }

func (t tunable) read(o Options) (int, error) {
	text, err := os.ReadFile(t.path(o))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// kernelIsAsNeeded is document 3 section 7 rule 2.
func kernelIsAsNeeded(o Options) error {
	if !o.ProtectKernelDefaults {
		return nil
	}
	var problems []error
	for _, t := range tunables() {
		name := strings.ReplaceAll(t.name, "/", ".")
		switch value, err := t.read(o); {
		case err != nil:
			problems = append(problems, fmt.Errorf("protectKernelDefaults (--protect-kernel-defaults): read %s: %w", name, err))
		case value != t.want:
			problems = append(problems, fmt.Errorf("protectKernelDefaults (--protect-kernel-defaults): %s is %d, not %d: set it with sysctl -w %s=%d", name, value, t.want, name, t.want))
		}
	}
	return errors.Join(problems...)
}

// setTunables changes the kernel settings that differ, and returns the errors.
func setTunables(o Options) []error {
	var problems []error
	for _, t := range tunables() {
		value, err := t.read(o)
		if err == nil && value != t.want {
			err = os.WriteFile(t.path(o), []byte(strconv.Itoa(t.want)), 0o640)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("set the kernel's %s to %d: %w", strings.ReplaceAll(t.name, "/", "."), t.want, err))
		}
	}
	return problems
}
