package eviction

import (
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"svc.dev/svc/svclet/eviction/threshold"
)

// Observation is how much of a resource is available, of how much. Units are bytes,
// inodes or processes.
type Observation struct{ Available, Capacity int64 }

// Signals are the observations that could be made.
type Signals map[threshold.Signal]Observation

// Observe returns the signals of a summary.
func Observe(s *statsapi.Summary) Signals {
	observed := Signals{}
	for signal, m := range memoryOf(s) {
		observed.memory(signal, m)
	}
	observed.files(threshold.NodeFs, threshold.NodeFsInodes, s.Node.Fs)
	if r := s.Node.Runtime; r != nil {
		observed.files(threshold.ImageFs, threshold.ImageFsInodes, r.ImageFs)
		observed.files(threshold.ContainerFs, threshold.ContainerFsInodes, r.ContainerFs)
	}
	if r := s.Node.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil {
		observed[threshold.PID] = Observation{*r.MaxPID - *r.NumOfRunningProcesses, *r.MaxPID}
	}
	return observed
}

// memoryOf returns the memory that signals are of.
func memoryOf(s *statsapi.Summary) map[threshold.Signal]*statsapi.MemoryStats {
	all := map[threshold.Signal]*statsapi.MemoryStats{threshold.Memory: s.Node.Memory}
	for i := range s.Node.SystemContainers {
		if c := &s.Node.SystemContainers[i]; c.Name == statsapi.SystemContainerPods {
			all[threshold.AllocatableMemory] = c.Memory
		}
	}
	return all
}

// memory observes memory. That which has no limit does not run out.
func (s Signals) memory(signal threshold.Signal, m *statsapi.MemoryStats) {
	if m != nil && m.AvailableBytes != nil && m.WorkingSetBytes != nil {
		s.add(signal, *m.AvailableBytes, *m.AvailableBytes+*m.WorkingSetBytes)
	}
}

func (s Signals) files(bytes, inodes threshold.Signal, f *statsapi.FsStats) {
	if f == nil {
		return
	}
	if f.AvailableBytes != nil && f.CapacityBytes != nil {
		s.add(bytes, *f.AvailableBytes, *f.CapacityBytes)
	}
	if f.InodesFree != nil && f.Inodes != nil {
		s.add(inodes, *f.InodesFree, *f.Inodes)
	}
}

func (s Signals) add(signal threshold.Signal, available, capacity uint64) {
	s[signal] = Observation{int64(available), int64(capacity)} //nolint:gosec // no machine overflows int64
}
