package cgroup

import "time"

// The kernel's limits (kernel/sched/sched.h), and the shares of one CPU.
const (
	minShares    = 2
	maxShares    = 262144
	sharesPerCPU = 1024
	// minQuota is 1 ms, the kernel's minimum, in microseconds.
	minQuota = 1000
)

// Shares converts a CPU request in milli-CPU to cpu.shares. Without a request it
// returns the minimum.
func Shares(milliCPU int64) uint64 {
	return uint64(min(max(milliCPU*sharesPerCPU/1000, minShares), maxShares))
}

// Quota converts a CPU limit in milli-CPU to the CPU time per period, in
// microseconds. Without a limit it returns 0.
func Quota(milliCPU int64, period time.Duration) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(milliCPU*period.Microseconds()/1000, minQuota)
}

// weight converts cpu.shares to cgroup v2's cpu.weight: [2, 262144] to [1, 10000].
func weight(shares uint64) uint64 {
	if shares >= maxShares {
		return 10000
	}
	return 1 + (max(shares, minShares)-minShares)*9999/(maxShares-minShares)
}
