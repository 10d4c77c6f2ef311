// Package metrics declares the kinds of the resource metrics API
// (metrics.k8s.io): the current usage of nodes and pods, which kubectl top shows
// and autoscalers read.
//
// No metrics are stored or sampled in the background: a request fetches the
// stats summary of each node agent that it needs. If an agent does not answer,
// its node and pods are left out.
package metrics

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"svc.dev/svc/apis/resource"
)

// Kinds returns the kinds of metrics.k8s.io. A server serves them only if the
// cluster has no metrics server of its own.
func Kinds() []resource.Declaration {
	s := newSummaries()
	return []resource.Declaration{
		nodes(s),
		pods(s),
	}
}

// window is the longest time over which an agent has measured CPU usage. The
// summary does not contain it; kubelet measures every 10 to 15 seconds.
const window = 30 * time.Second

// usage returns the usage of CPU and memory, or nil if one of them has not been
// measured yet.
func usage(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats) corev1.ResourceList {
	if cpu == nil || cpu.UsageNanoCores == nil || memory == nil || memory.WorkingSetBytes == nil {
		return nil
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    *apiresource.NewScaledQuantity(int64(*cpu.UsageNanoCores), apiresource.Nano),
		corev1.ResourceMemory: *apiresource.NewQuantity(int64(*memory.WorkingSetBytes), apiresource.BinarySI),
	}
}

// metadataFor returns the metadata of an object's metrics.
func metadataFor(obj metav1.Object, now time.Time) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: obj.GetName(), Namespace: obj.GetNamespace(), Labels: obj.GetLabels(), CreationTimestamp: metav1.NewTime(now)}
}

// columns returns the columns of the table view, which are metrics-server's.
func columns[T resource.Object](used func(obj T) corev1.ResourceList, window func(obj T) metav1.Duration) []resource.Column[T] {
	quantity := func(name corev1.ResourceName) resource.Column[T] {
		return resource.Column[T]{Name: string(name), Format: "quantity", Value: func(obj T) any {
			q := used(obj)[name]
			return q.String()
		}}
	}
	return []resource.Column[T]{
		resource.Name[T](),
		quantity(corev1.ResourceCPU),
		quantity(corev1.ResourceMemory),
		{Name: "Window", Format: "duration", Value: func(obj T) any { return window(obj).Duration.String() }},
	}
}
