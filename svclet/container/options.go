package container

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/cgroup"
)

// Options are the node's part of a configuration, the same for all pods. Fields
// for flags are named after them.
type Options struct {
	// PodLogs is the directory of all pods' logs. The default is [DefaultPodLogs].
	PodLogs string

	// ClusterDNS is --cluster-dns, ClusterDomain is --cluster-domain, ResolvConf is
	// --resolv-conf; if the latter is empty, pods do not get the node's resolvers.
	ClusterDNS    []string
	ClusterDomain string
	ResolvConf    string
	// NodeIPs are the node's addresses for status.hostIPs, the primary one first.
	NodeIPs []netip.Addr

	// SeccompDefault is --seccomp-default. SeccompRoot is the directory of Localhost
	// profiles (<root-dir>/seccomp).
	SeccompDefault bool
	SeccompRoot    string

	// CPUCFSQuota is --cpu-cfs-quota, CPUCFSQuotaPeriod its period, by default 100 ms.
	CPUCFSQuota       bool
	CPUCFSQuotaPeriod time.Duration
	// ExclusiveCPUs are the CPUs that containers have alone, which the quota does not limit.
	// Nil if it limits all containers.
	ExclusiveCPUs ExclusiveCPUs
	// SingleProcessOOMKill kills only one process of a container that runs out of
	// memory, not all of them. It has an effect on cgroup v2 only; v1 always does so.
	SingleProcessOOMKill bool
	// LimitedSwap lets burstable containers swap in proportion to their memory
	// requests (memorySwap.swapBehavior: LimitedSwap). Cgroup v2 only.
	LimitedSwap bool

	// DefaultSysctls are those of pods that do not set them (defaultPodSysctls).
	DefaultSysctls map[string]string

	// Protection is how the memory that containers request is protected from reclaim;
	// unless it is empty, a container is throttled before it reaches its limit, or without
	// one the node's allocatable: when it uses its request and ThrottlingFactor of what is
	// above that (KEP-2570). Cgroup v2 only.
	Protection       cgroup.Protection
	ThrottlingFactor float64

	// RecordResources records, on each container, the CPU and memory that it is created
	// with: they may change in place.
	RecordResources bool

	// Allocatable is the node's allocatable: the value of resourceFieldRef for
	// containers without limits.
	Allocatable corev1.ResourceList
	// Host describes the machine.
	Host Host
}

// ExclusiveCPUs are the CPUs that containers have alone.
type ExclusiveCPUs interface {
	// HasExclusiveCPUs reports whether a container has some.
	HasExclusiveCPUs(pod types.UID, container string) bool
	// PodHasExclusiveCPUs reports whether one of the pod's containers has some.
	PodHasExclusiveCPUs(pod types.UID) bool
}

// DefaultPodLogs is where kubelet writes pods' logs and log collectors expect
// them.
const DefaultPodLogs = "/var/log/pods"

const defaultCFSQuotaPeriod = 100 * time.Millisecond

func (o Options) podLogs() string {
	if o.PodLogs == "" {
		return DefaultPodLogs
	}
	return o.PodLogs
}

func (o Options) cfsQuotaPeriod() time.Duration {
	if o.CPUCFSQuotaPeriod == 0 {
		return defaultCFSQuotaPeriod
	}
	return o.CPUCFSQuotaPeriod
}

// Objects returns the API objects that specs refer to. For an object that does not
// exist it returns an error that apierrors.IsNotFound recognizes.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services returns the services of a namespace.
	Services(ctx context.Context, namespace string) ([]*corev1.Service, error)
}
