package stats

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// pod returns the statistics of a sandbox, without its containers.
func (p *Provider) pod(sandbox *runtimeapi.PodSandbox, s *runtimeapi.PodSandboxStats, only bool) *statsapi.PodStats {
	meta := sandbox.GetMetadata()
	pod := &statsapi.PodStats{
		PodRef:    statsapi.PodReference{Name: meta.GetName(), Namespace: meta.GetNamespace(), UID: meta.GetUid()},
		StartTime: nanoseconds(sandbox.CreatedAt),
	}
	linux := s.GetLinux()
	if linux == nil {
		return pod
	}
	pod.CPU, pod.Memory = p.criCPU(sandbox.Id, linux.Cpu), criMemory(linux.Memory)
	if pod.Memory != nil && !isLimited(pod.Memory) {
		pod.Memory.AvailableBytes = nil
	}
	if only {
		return pod
	}
	if n := linux.Network; n != nil {
		pod.Network = &statsapi.NetworkStats{Time: nanoseconds(n.Timestamp), InterfaceStats: criInterface(n.DefaultInterface)}
		if n.DefaultInterface != nil {
			pod.Network.Interfaces = append(pod.Network.Interfaces, pod.Network.InterfaceStats)
		}
		for _, i := range n.Interfaces {
			pod.Network.Interfaces = append(pod.Network.Interfaces, criInterface(i))
		}
	}
	if linux.Process != nil {
		pod.ProcessStats = &statsapi.ProcessStats{ProcessCount: value(linux.Process.ProcessCount)}
	}
	if linux.Io != nil {
		pod.IO = &statsapi.IOStats{Time: nanoseconds(linux.Io.Timestamp), PSI: criPressure(linux.Io.Psi)}
	}
	return pod
}

// container returns the statistics of a container.
func (p *Provider) container(sandbox *runtimeapi.PodSandbox, c *runtimeapi.Container, s *runtimeapi.ContainerStats, only bool) statsapi.ContainerStats {
	r := statsapi.ContainerStats{
		Name: c.GetMetadata().GetName(), StartTime: nanoseconds(c.CreatedAt),
		CPU: p.criCPU(c.Id, s.Cpu), Memory: criMemory(s.Memory), Swap: p.criSwap(s.Swap),
	}
	if r.CPU == nil {
		r.CPU = &statsapi.CPUStats{Time: p.now(), UsageCoreNanoSeconds: ptr.To[uint64](0), UsageNanoCores: ptr.To[uint64](0)}
	}
	if r.Memory == nil {
		r.Memory = &statsapi.MemoryStats{Time: p.now(), WorkingSetBytes: ptr.To[uint64](0), UsageBytes: ptr.To[uint64](0), RSSBytes: ptr.To[uint64](0)}
	}
	if only {
		return r
	}
	if s.Io != nil {
		r.IO = &statsapi.IOStats{Time: nanoseconds(s.Io.Timestamp), PSI: criPressure(s.Io.Psi)}
	}
	r.Rootfs = writableLayer(s.WritableLayer)
	r.Logs = p.logs(sandbox.GetMetadata(), r.Name)
	return r
}

func (p *Provider) now() metav1.Time { return metav1.NewTime(p.o.Clock.Now()) }

func (p *Provider) criCPU(id string, c *runtimeapi.CpuUsage) *statsapi.CPUStats {
	if c == nil {
		return nil
	}
	s := &statsapi.CPUStats{
		Time: nanoseconds(c.Timestamp), UsageCoreNanoSeconds: value(c.UsageCoreNanoSeconds),
		UsageNanoCores: value(c.UsageNanoCores), PSI: criPressure(c.Psi),
	}
	if s.UsageCoreNanoSeconds != nil {
		rate := p.rates.next(id, s.Time.Time, *s.UsageCoreNanoSeconds)
		if s.UsageNanoCores == nil {
			s.UsageNanoCores = rate
		}
	}
	return s
}

func criMemory(m *runtimeapi.MemoryUsage) *statsapi.MemoryStats {
	if m == nil {
		return nil
	}
	return &statsapi.MemoryStats{
		Time: nanoseconds(m.Timestamp), AvailableBytes: value(m.AvailableBytes), UsageBytes: value(m.UsageBytes),
		WorkingSetBytes: value(m.WorkingSetBytes), RSSBytes: value(m.RssBytes),
		PageFaults: value(m.PageFaults), MajorPageFaults: value(m.MajorPageFaults), PSI: criPressure(m.Psi),
	}
}

// isLimited reports whether there is a memory limit. Without one, containerd
// reports no available memory, or almost all of it.
func isLimited(m *statsapi.MemoryStats) bool {
	available := ptr.Deref(m.AvailableBytes, 0)
	return available > 0 && available < unlimited
}

// criSwap returns zero, not unknown, if the runtime does not report swap.
func (p *Provider) criSwap(s *runtimeapi.SwapUsage) *statsapi.SwapStats {
	r := &statsapi.SwapStats{Time: p.now(), SwapUsageBytes: ptr.To[uint64](0), SwapAvailableBytes: ptr.To[uint64](0)}
	if s == nil {
		return r
	}
	r.Time = nanoseconds(s.Timestamp)
	if v := value(s.SwapUsageBytes); v != nil {
		r.SwapUsageBytes = v
	}
	if v := value(s.SwapAvailableBytes); v != nil {
		r.SwapAvailableBytes = v
	}
	return r
}

func criPressure(s *runtimeapi.PsiStats) *statsapi.PSIStats {
	if s == nil {
		return nil
	}
	data := func(d *runtimeapi.PsiData) statsapi.PSIData {
		return statsapi.PSIData{Total: d.GetTotal(), Avg10: d.GetAvg10(), Avg60: d.GetAvg60(), Avg300: d.GetAvg300()}
	}
	return &statsapi.PSIStats{Full: data(s.Full), Some: data(s.Some)}
}

func criInterface(i *runtimeapi.NetworkInterfaceUsage) statsapi.InterfaceStats {
	return statsapi.InterfaceStats{
		Name: i.GetName(), RxBytes: value(i.GetRxBytes()), RxErrors: value(i.GetRxErrors()),
		TxBytes: value(i.GetTxBytes()), TxErrors: value(i.GetTxErrors()),
	}
}

// sumOfContainers sets what the runtime does not report about a sandbox to the sum
// of its containers.
func sumOfContainers(pod *statsapi.PodStats) {
	limited := true
	for _, c := range pod.Containers {
		if c.CPU != nil {
			if pod.CPU == nil {
				pod.CPU = &statsapi.CPUStats{}
			}
			pod.CPU.Time = c.CPU.Time
			add(&pod.CPU.UsageCoreNanoSeconds, c.CPU.UsageCoreNanoSeconds)
			add(&pod.CPU.UsageNanoCores, c.CPU.UsageNanoCores)
		}
		if m := c.Memory; m != nil {
			if pod.Memory == nil {
				pod.Memory = &statsapi.MemoryStats{}
			}
			pod.Memory.Time = m.Time
			limited = limited && isLimited(m)
			add(&pod.Memory.AvailableBytes, m.AvailableBytes)
			add(&pod.Memory.UsageBytes, m.UsageBytes)
			add(&pod.Memory.WorkingSetBytes, m.WorkingSetBytes)
			add(&pod.Memory.RSSBytes, m.RSSBytes)
			add(&pod.Memory.PageFaults, m.PageFaults)
			add(&pod.Memory.MajorPageFaults, m.MajorPageFaults)
		}
	}
	if pod.Memory != nil && !limited {
		pod.Memory.AvailableBytes = nil
	}
}

// swapOfContainers returns the sum of the containers' swap, which no runtime
// reports for a sandbox.
func swapOfContainers(pod *statsapi.PodStats) *statsapi.SwapStats {
	var sum *statsapi.SwapStats
	for _, c := range pod.Containers {
		if c.Swap == nil {
			continue
		}
		if sum == nil {
			sum = &statsapi.SwapStats{}
		}
		sum.Time = c.Swap.Time
		add(&sum.SwapUsageBytes, c.Swap.SwapUsageBytes)
		add(&sum.SwapAvailableBytes, c.Swap.SwapAvailableBytes)
	}
	return sum
}

// add adds n, if it is known, to a sum that is nil until then.
func add(sum **uint64, n *uint64) {
	if n != nil {
		*sum = ptr.To(ptr.Deref(*sum, 0) + *n)
	}
}

func value(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return ptr.To(v.Value)
}

func nanoseconds(at int64) metav1.Time { return metav1.NewTime(time.Unix(0, at)) }
