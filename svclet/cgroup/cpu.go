package cgroup

import "time"

// The kernel's bounds (kernel/sched/sched.h), and what a whole CPU counts.
const (
	minShares    = 2
	maxShares    = 262144
	sharesPerCPU = 1024
	// minQuota is 1 ms, the least that the kernel takes, in microseconds.
	minQuota = 1000
)

// Shares puts a CPU request, in thousandths of a CPU, as cpu.shares. Nothing
// requested is the least share.
func Shares(milliCPU int64) uint64 {
	return uint64(min(max(milliCPU*sharesPerCPU/1000, minShares), maxShares))
}

// Quota puts a CPU limit, in thousandths of a CPU, as the microseconds that may
// be used in each period. No limit is 0.
func Quota(milliCPU int64, period time.Duration) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(milliCPU*period.Microseconds()/1000, minQuota)
}

// weight puts cpu.shares as cgroup v2's cpu.weight: [2, 262144] as [1, 10000].
func weight(shares uint64) uint64 {
	if shares >= maxShares {
		return 10000
	}
	return 1 + (max(shares, minShares)-minShares)*9999/(maxShares-minShares)
}
