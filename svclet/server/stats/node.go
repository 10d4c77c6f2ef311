package stats

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// node measures the machine.
func (p *Provider) node(ctx context.Context, only bool) (*statsapi.NodeStats, error) {
	now := p.o.Clock.Now()
	u, err := p.machine.cgroup("/")
	if err != nil {
		return nil, fmt.Errorf("failed to get root cgroup stats: %w", err)
	}
	n := &statsapi.NodeStats{
		NodeName: p.o.NodeName, CPU: p.cpu("/", u, now), Memory: memory(u, now), Swap: swap(u, now),
		SystemContainers: p.systemContainers(ctx, now),
	}
	booted, err := p.machine.booted()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to get system boot time, node metrics will have an incorrect start time")
	}
	n.StartTime = metav1.NewTime(booted)
	if only {
		return n, nil
	}
	n.IO = pressureOnIO(u.ioPSI, now)
	if n.Network, err = p.machine.network(now); err != nil {
		return nil, fmt.Errorf("failed to get network stats: %w", err)
	}
	if n.Fs, err = fileSystem(p.o.RootDirectory, now); err != nil {
		return nil, fmt.Errorf("failed to get rootFs stats: %w", err)
	}
	if n.Rlimit, err = p.machine.processes(now); err != nil {
		return nil, fmt.Errorf("failed to get rlimit stats: %w", err)
	}
	if n.Runtime, err = p.imageFileSystem(ctx); err != nil {
		return nil, fmt.Errorf("failed to get imageFs stats: %w", err)
	}
	return n, nil
}

// Probe measures only what thresholds of eviction are of, in a fraction of a millisecond:
// memory, disks and processes of the node.
func (p *Provider) Probe() (*statsapi.Summary, error) {
	now := p.o.Clock.Now()
	u, err := p.machine.cgroup("/")
	if err != nil {
		return nil, err
	}
	s := &statsapi.Summary{Node: statsapi.NodeStats{Memory: memory(u, now)}}
	if pods, err := p.machine.cgroup(p.o.SystemContainers[statsapi.SystemContainerPods]); err == nil { // otherwise it has been left out
		s.Node.SystemContainers = []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods, Memory: memory(pods, now)}}
	}
	if s.Node.Fs, err = fileSystem(p.o.RootDirectory, now); err != nil {
		return nil, err
	}
	if s.Node.Rlimit, err = p.machine.processes(now); err != nil {
		return nil, err
	}
	disks := p.disks.Load()
	if disks == nil {
		return s, nil
	}
	s.Node.Runtime = &statsapi.RuntimeStats{}
	if s.Node.Runtime.ImageFs, err = fileSystem(disks[0], now); err != nil {
		return nil, err
	}
	s.Node.Runtime.ContainerFs, err = fileSystem(disks[1], now)
	return s, err
}

// PodCgroup measures the memory and the processes of a pod by its cgroup, without the runtime.
// A cgroup that does not exist uses nothing: the containers of the pod have not been created.
func (p *Provider) PodCgroup(cgroup string) (*statsapi.PodStats, error) {
	u, err := p.machine.cgroup(cgroup)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	processes, err := p.machine.tasks(cgroup)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return &statsapi.PodStats{Memory: memory(u, p.o.Clock.Now()), ProcessStats: &statsapi.ProcessStats{ProcessCount: &processes}}, nil
}

// systemContainers measures the cgroups besides those of pods. A cgroup that does
// not exist is left out.
func (p *Provider) systemContainers(ctx context.Context, now time.Time) []statsapi.ContainerStats {
	var all []statsapi.ContainerStats
	for _, name := range slices.Sorted(maps.Keys(p.o.SystemContainers)) {
		cgroup := p.o.SystemContainers[name]
		if cgroup == "" {
			continue
		}
		u, err := p.machine.cgroup(cgroup)
		if err != nil {
			klog.FromContext(ctx).V(4).Info("Failed to get system container stats", "containerName", cgroup, "err", err)
			continue
		}
		s := statsapi.ContainerStats{Name: name, CPU: p.cpu(cgroup, u, now), Memory: memory(u, now), Swap: swap(u, now)}
		if name == statsapi.SystemContainerKubelet {
			s.StartTime = metav1.NewTime(p.o.Started)
		}
		all = append(all, s)
	}
	return all
}

func (p *Provider) cpu(name string, u usage, now time.Time) *statsapi.CPUStats {
	return &statsapi.CPUStats{
		Time: metav1.NewTime(now), UsageCoreNanoSeconds: &u.cpu, UsageNanoCores: p.rates.next(name, now, u.cpu), PSI: u.cpuPSI,
	}
}

// unlimited is the smallest memory limit that means no limit: cgroup v1 reports
// the largest multiple of the page size.
const unlimited = math.MaxInt64 / 2

func memory(u usage, now time.Time) *statsapi.MemoryStats {
	m := &statsapi.MemoryStats{
		Time: metav1.NewTime(now), UsageBytes: &u.memory, WorkingSetBytes: &u.workingSet, RSSBytes: &u.rss,
		PageFaults: &u.pageFaults, MajorPageFaults: &u.majorPageFaults, PSI: u.memoryPSI,
	}
	if u.limit < unlimited {
		available := less(u.limit, u.workingSet)
		m.AvailableBytes = &available
	}
	return m
}

func swap(u usage, now time.Time) *statsapi.SwapStats {
	available := less(u.swapLimit, u.swap)
	return &statsapi.SwapStats{Time: metav1.NewTime(now), SwapUsageBytes: &u.swap, SwapAvailableBytes: &available}
}

func pressureOnIO(psi *statsapi.PSIStats, now time.Time) *statsapi.IOStats {
	return &statsapi.IOStats{Time: metav1.NewTime(now), PSI: psi}
}

// ImageFileSystem measures the first image file system of the runtime.
func (p *Provider) ImageFileSystem(ctx context.Context) (*statsapi.FsStats, error) {
	measured, err := p.imageFileSystem(ctx)
	if err != nil {
		return nil, err
	}
	return measured.ImageFs, nil
}

// imageFileSystem returns the first image file system of the runtime.
func (p *Provider) imageFileSystem(ctx context.Context) (*statsapi.RuntimeStats, error) {
	info, err := p.images.ImageFsInfo(ctx)
	if err != nil {
		return nil, err
	}
	if len(info.GetImageFilesystems()) == 0 {
		return nil, fmt.Errorf("imageFs information is unavailable")
	}
	images := p.runtimeFileSystem(ctx, info.ImageFilesystems[0])
	containers := images
	disks := [2]string{info.ImageFilesystems[0].GetFsId().GetMountpoint()}
	disks[1] = disks[0]
	if len(info.ContainerFilesystems) > 0 && info.ContainerFilesystems[0].GetFsId().GetMountpoint() != info.ImageFilesystems[0].GetFsId().GetMountpoint() {
		containers = p.runtimeFileSystem(ctx, info.ContainerFilesystems[0])
		disks[1] = info.ContainerFilesystems[0].GetFsId().GetMountpoint()
	}
	if images.CapacityBytes != nil && containers.CapacityBytes != nil { // otherwise they are another machine's
		p.disks.Store(&disks)
	}
	return &statsapi.RuntimeStats{ImageFs: images, ContainerFs: containers}, nil
}

// runtimeFileSystem returns the runtime's usage of a file system, with the file
// system's own figures if it is one of this machine.
func (p *Provider) runtimeFileSystem(ctx context.Context, u *runtimeapi.FilesystemUsage) *statsapi.FsStats {
	at := time.Unix(0, u.Timestamp)
	f, err := fileSystem(u.GetFsId().GetMountpoint(), at)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to get file system info of the mount point", "mountpoint", u.GetFsId().GetMountpoint(), "err", err)
		f = &statsapi.FsStats{Time: metav1.NewTime(at)}
	}
	f.UsedBytes, f.InodesUsed = value(u.UsedBytes), value(u.InodesUsed)
	return f
}
