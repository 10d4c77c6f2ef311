package containerd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/dns"
	"svc.dev/svc/svclet/host"
	"svc.dev/svc/svclet/networkpolicy"
	"svc.dev/svc/svclet/nft"
	"svc.dev/svc/svclet/podnetwork"
	"svc.dev/svc/svclet/proxy"
	"svc.dev/svc/svclet/volume"
)

// Reset stops all pods in the containerd of a directory, and containerd, and
// removes their resources: shims, cgroups, mounts, addresses, rules of services and network policies, routes to other nodes, the bridge, logs and
// their directories. Kernel parameters are restored. Images and the configuration stay. It continues after errors,
// and returns all of them, and the number of pods. The agent must not run. What is named
// after the bridge stays, with an error, if that is another running agent's, and without
// one if containerd has not been configured: it was refused the bridge of another agent.
//
// If the agent uses another runtime, Reset ends the pods there, and does nothing else
// if it cannot: their volumes are in use.
func Reset(ctx context.Context, config Config, agent Leavings) (pods int, err error) {
	network, err := config.readNetwork()
	if err != nil {
		return 0, err
	}
	config.Bridge, config.PodCIDRs = cmp.Or(network.Name, config.Bridge), network.cidrs()
	if err := config.Validate(); err != nil {
		return 0, err
	}
	var uids map[string]bool
	if agent.Endpoint != "" {
		if uids, err = endPodsAt(ctx, agent.Endpoint); err != nil {
			return len(uids), fmt.Errorf("end the pods at %s: %w", agent.Endpoint, err)
		}
	} else if _, err := os.Stat(config.runDir()); err == nil { // otherwise it has not run since the last reset
		if uids, err = endPods(ctx, config); err != nil {
			// The following steps kill the remaining pods.
			klog.FromContext(ctx).Info("Not all pods could be ended through containerd", "reason", err.Error())
		}
		if network, err = config.readNetwork(); err != nil {
			return len(uids), err
		}
	}
	running, _, err := config.find()
	errs := []error{err}
	if running != nil {
		errs = append(errs, running.stop(ctx))
	}
	ended := len(uids)
	uids, err = withDirectories(agent.Dir, uids)
	errs = append(errs, err, killShims(config), removeCgroups(uids), removeLogs(agent, uids))
	errs = append(errs, unmountUnder(config.Dir), unmountUnder(config.runDir()))
	if agent.Dir != "" {
		errs = append(errs, unmountRoot(agent.Dir), RemoveUnmounted(ctx, filepath.Join(agent.Dir, "pods")))
	}
	if agent.Cgroup != "" {
		errs = append(errs, removeCgroupEverywhere(agent.Cgroup))
	}
	switch config.Bridge = cmp.Or(network.Name, config.Bridge); {
	case agent.Endpoint != "": // its interface is not svclet's
		err = removeRulesOf("")
	case config.Bridge != "": // otherwise containerd has not been configured, and has made none
		err = removeNetwork(ctx, config, network.cidrs())
	default:
		err = nil
	}
	errs = append(errs, err)
	if agent.Dir != "" {
		errs = append(errs, nft.NewParameters(agent.Dir).Restore())
	}
	dirs := []string{config.runDir(), config.addressesDir()}
	if err == nil {
		dirs = append(dirs, config.cniDir()) // it names the bridge for another attempt
	}
	for _, dir := range dirs {
		errs = append(errs, RemoveUnmounted(ctx, dir))
	}
	return ended, errors.Join(errs...)
}

// removeNetwork removes the bridge, and what is named after it, unless it is the bridge of
// a running agent.
func removeNetwork(ctx context.Context, config Config, cidrs []string) error {
	bridge := config.bridge()
	lock, err := lockBridge(bridge, "stop that, and reset again")
	if err != nil {
		return err
	}
	if lock != nil {
		defer func() { _ = lock.Close() }() // a socket that nothing was sent to
	}
	var errs []error
	if iptables := config.Programs.IPTables; iptables != "" {
		errs = append(errs, removeRules(ctx, iptables, slices.Concat(masqueradeRules(bridge, cidrs), forwardRules(bridge, cidrs), serviceRules(bridge, cidrs))), config.removeTables())
	}
	return errors.Join(append(errs, forgetNetworks(config), removeRulesOf(bridge), removeBridge(bridge))...)
}

// removeRulesOf removes the rules of services and network policies, the routes to other nodes
// and the interface of the DNS server, of a bridge or, without, of another runtime. A process
// that may not change the network has made none.
func removeRulesOf(bridge string) error {
	if may, err := host.MayAdministerNetwork(); !may || err != nil {
		return err
	}
	return errors.Join(proxy.Remove(bridge), networkpolicy.Remove(bridge), podnetwork.Remove(bridge), dns.Remove(bridge))
}

// RemoveUnmounted removes a directory, and the symlink if its path is one. It returns
// an error, and removes nothing, if the directory contains a mount, whose content
// would be removed too.
func RemoveUnmounted(ctx context.Context, dir string) error {
	real, mounts, err := mountsUnder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s is kept: %s is mounted in it", dir, mounts[0])
	}
	if err := volume.RemoveTree(ctx, real); err != nil {
		return err
	}
	if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// endPods stops and removes all pods through CRI, and returns their UIDs. It
// starts containerd if necessary.
func endPods(ctx context.Context, config Config) (uids map[string]bool, err error) {
	running, heard, err := config.find()
	if err != nil {
		return nil, err
	}
	answers := false
	switch {
	case running != nil && !heard:
		running.forget() // Start adopts it
	case running != nil:
		asking, cancel := context.WithTimeout(ctx, adoptTimeout)
		_, err := askCRI(asking, config.socket())
		cancel()
		if answers = err == nil; answers {
			running.forget()
		} else if err := running.stop(ctx); err != nil {
			return nil, err
		}
	}
	if !answers {
		started, err := Start(ctx, config)
		if err != nil {
			return nil, err
		}
		defer started.Close()
	}
	return endPodsAt(ctx, config.Endpoint())
}

// endPodsAt stops and removes all pods at a CRI endpoint, and returns their UIDs.
func endPodsAt(ctx context.Context, endpoint string) (uids map[string]bool, err error) {
	if !strings.Contains(endpoint, "://") {
		endpoint = "unix://" + endpoint
	}
	conn, err := dial(endpoint)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	listing, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	pods, err := cri.ListPodSandbox(listing, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	uids = map[string]bool{}
	for _, pod := range pods.GetItems() {
		uids[pod.GetMetadata().GetUid()] = true
	}
	var ending sync.WaitGroup
	atOnce := make(chan struct{}, podsAtOnce)
	errs := make([]error, len(pods.GetItems()))
	for i, pod := range pods.GetItems() {
		ending.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			ctx, cancel := context.WithTimeout(ctx, podTimeout)
			defer cancel()
			if _, err := cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod.GetId()}); err != nil {
				errs[i] = fmt.Errorf("stop the pod %s/%s: %w", pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), err)
				return
			}
			if _, err := cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod.GetId()}); err != nil {
				errs[i] = fmt.Errorf("remove the pod %s/%s: %w", pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), err)
			}
		})
	}
	ending.Wait()
	return uids, errors.Join(errs...)
}

const (
	podsAtOnce = 8
	podTimeout = 30 * time.Second
)

// killShims kills the remaining shims of containerd, after the processes in their
// containers.
func killShims(config Config) error {
	inits, err := filepath.Glob(filepath.Join(config.stateDir(), "io.containerd.runtime.v2.task", "*", "*", "init.pid"))
	if err != nil {
		return fmt.Errorf("look for containers: %w", err)
	}
	shims, err := shimsOf(config.socket())
	if err != nil {
		return err
	}
	// Without its shim a PID may have been reused.
	if len(shims) == 0 {
		return nil
	}
	var pids []int
	for _, file := range inits {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	var errs []error
	for _, pid := range append(pids, shims...) {
		errs = append(errs, kill(config.clock(), pid))
	}
	return errors.Join(errs...)
}

// shimsOf returns the shims of the containerd at a socket.
func shimsOf(socket string) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var shims []int
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has exited
		}
		args := bytes.Split(content, []byte{0})
		at := slices.IndexFunc(args, func(arg []byte) bool { return string(arg) == "-address" })
		if !strings.HasPrefix(filepath.Base(string(args[0])), "containerd-shim") || at < 0 || at+1 >= len(args) || string(args[at+1]) != socket {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			shims = append(shims, pid)
		}
	}
	return shims, nil
}

// kill kills a process and waits until it has exited.
func kill(c clock.Clock, pid int) error {
	p, err := watch(pid, nil)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.forget()
	if err := p.signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("kill the process %d: %w", pid, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-c.After(stopTimeout):
		return fmt.Errorf("the process %d does not end", pid)
	}
}

// cgroupRoot is the mount point of cgroups, of either version.
const cgroupRoot = "/sys/fs/cgroup"

// removeCgroups removes the cgroups of pods, which have no processes any more.
func removeCgroups(uids map[string]bool) error {
	if len(uids) == 0 {
		return nil
	}
	var found []string
	err := filepath.WalkDir(cgroupRoot, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		if err == nil && entry.IsDir() && uids[podOfCgroup(entry.Name())] {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("look for the cgroups of pods: %w", err)
	}
	var errs []error
	for _, dir := range slices.Backward(found) {
		errs = append(errs, removeCgroup(dir))
	}
	return errors.Join(errs...)
}

// removeCgroup removes a cgroup and its descendants.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		if entry.IsDir() {
			errs = append(errs, removeCgroup(filepath.Join(dir, entry.Name())))
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		errs = append(errs, fmt.Errorf("remove the cgroup %s: %w", dir, err))
	}
	return errors.Join(errs...)
}

// removeCgroupEverywhere removes a cgroup in each hierarchy.
func removeCgroupEverywhere(name string) error {
	found, err := filepath.Glob(filepath.Join(cgroupRoot, "*", name))
	errs := []error{err}
	for _, dir := range append(found, filepath.Join(cgroupRoot, name)) {
		errs = append(errs, removeCgroup(dir))
	}
	return errors.Join(errs...)
}

// podOfCgroup returns the UID of the pod with this cgroup name, by kubelet's rules
// for both drivers: pod<uid>, and kubepods-<class>-pod<uid>.slice with
// underscores.
func podOfCgroup(name string) string {
	if systemd, ok := strings.CutSuffix(name, ".slice"); ok {
		_, uid, _ := strings.Cut(systemd, "-pod")
		return strings.ReplaceAll(uid, "_", "-")
	}
	uid, _ := strings.CutPrefix(name, "pod")
	return uid
}

// unmountUnder unmounts dir and all mounts in it, the latest first.
func unmountUnder(dir string) error {
	_, mounts, err := mountsUnder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return unmount(mounts)
}

// unmount unmounts mounts, the last first.
func unmount(mounts []string) error {
	var errs []error
	for _, mount := range slices.Backward(mounts) {
		if err := unix.Unmount(mount, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", mount, err))
		}
	}
	return errors.Join(errs...)
}

// mountsUnder returns dir without symlinks, as the kernel's mount table has it, and
// the mounts at it and in it, in mount order.
func mountsUnder(dir string) (real string, mounts []string, err error) {
	if real, err = filepath.EvalSymlinks(dir); err != nil {
		return "", nil, err
	}
	table, err := mountinfo.GetMounts(mountinfo.PrefixFilter(real))
	if err != nil {
		return "", nil, fmt.Errorf("list the mounts in %s: %w", real, err)
	}
	for _, m := range table {
		mounts = append(mounts, m.Mountpoint)
	}
	return real, mounts, nil
}

// forgetNetworks removes CNI's results of pods that could not be stopped properly.
func forgetNetworks(config Config) error {
	files, err := filepath.Glob(filepath.Join(ResultsDir, config.bridge()+"-*"))
	if err != nil {
		return fmt.Errorf("look for networks of pods: %w", err)
	}
	var errs []error
	for _, file := range files {
		errs = append(errs, os.Remove(file))
	}
	return errors.Join(errs...)
}

// removeBridge removes the network interface if it is a bridge.
func removeBridge(name string) error {
	if kind, err := linkType(name); err != nil || kind != bridgeType {
		return err
	}
	if err := netlink.LinkDel(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
		return fmt.Errorf("remove the bridge %s: %w", name, err)
	}
	return nil
}
