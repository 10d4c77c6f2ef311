package footprint

import (
	"context"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/klog/v2"
)

// heapShare is the part of the memory of its cgroup that the Go runtime of the process may use:
// the rest is for the pages of files.
const heapShare = 0.9

// Limit lets the garbage collector run more often before the process reaches the memory limit of
// its cgroup, that of a container or a systemd unit, where it would be killed: with Go's own pace
// the heap may be twice what lives. It does nothing without such a limit, and if the environment
// variable GOMEMLIMIT is set: then that is the limit.
func Limit(ctx context.Context) { limit(ctx, memlimit.FromCgroup) }

func limit(ctx context.Context, provider memlimit.Provider) {
	if _, err := memlimit.Set(memlimit.WithRatio(heapShare), memlimit.WithProvider(provider)); err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to read the memory limit of the cgroup", "err", err)
	}
}
