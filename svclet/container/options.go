package container

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Options are the node's share in a configuration: the same for all pods. Those
// that are flags bear their names.
type Options struct {
	// PodLogs is the directory of all pods' logs. Default: [DefaultPodLogs].
	PodLogs string

	// ClusterDNS are the addresses of --cluster-dns, ClusterDomain is
	// --cluster-domain, ResolvConf the path of --resolv-conf; an empty one
	// leaves pods without the node's resolvers.
	ClusterDNS    []string
	ClusterDomain string
	ResolvConf    string
	// NodeIPs are the node's addresses, the primary one first: those that
	// status.hostIPs names.
	NodeIPs []netip.Addr

	// SeccompDefault is --seccomp-default. SeccompRoot is the directory of
	// Localhost profiles (<root-dir>/seccomp).
	SeccompDefault bool
	SeccompRoot    string

	// CPUCFSQuota is --cpu-cfs-quota, CPUCFSQuotaPeriod its period. Default of
	// the latter: 100 ms.
	CPUCFSQuota       bool
	CPUCFSQuotaPeriod time.Duration
	// SingleProcessOOMKill kills only one process of a container that runs out
	// of memory, not all. It counts on cgroup v2 only; v1 can do no other.
	SingleProcessOOMKill bool
	// LimitedSwap lets burstable containers swap in proportion to their
	// requests (memorySwap.swapBehavior: LimitedSwap). Cgroup v2 only.
	LimitedSwap bool

	// Allocatable is what the node has for pods: the limits of containers
	// without limits, as resourceFieldRef shows them.
	Allocatable corev1.ResourceList
	// Host is what the machine can do.
	Host Host
}

// DefaultPodLogs is where kubelet and collectors of logs have pods' logs.
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

// Objects are where what specs name is looked up. An object that does not exist
// is an error that apierrors.IsNotFound recognises.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Services are those of a namespace.
	Services(ctx context.Context, namespace string) ([]*corev1.Service, error)
}
