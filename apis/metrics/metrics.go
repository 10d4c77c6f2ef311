// Package metrics declares what nodes and pods use at the moment: the resource
// metrics of metrics.k8s.io, which kubectl top shows and autoscalers read.
//
// Nothing is stored and nothing is sampled in the background: when a client
// asks, the agents of the nodes in question are asked. An agent that does not
// answer takes no more than its own node and pods out of the answer.
package metrics

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"svc.dev/svc/apis/resource"
)

// Kinds are the kinds of metrics.k8s.io. They are not among those of every
// server: a cluster may have a metrics server of its own.
func Kinds() []resource.Declaration {
	agents := newSurvey()
	return []resource.Declaration{
		nodes(agents),
		pods(agents),
	}
}

// window is over how long a time an agent has measured, at the most. It does
// not tell; kubelet measures every 10 to 15 seconds.
const window = 30 * time.Second

// usage is what is used of processors and memory, or nothing if one of them is
// not known yet.
func usage(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats) corev1.ResourceList {
	if cpu == nil || cpu.UsageNanoCores == nil || memory == nil || memory.WorkingSetBytes == nil {
		return nil
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    *apiresource.NewScaledQuantity(int64(*cpu.UsageNanoCores), apiresource.Nano),
		corev1.ResourceMemory: *apiresource.NewQuantity(int64(*memory.WorkingSetBytes), apiresource.BinarySI),
	}
}

// about is the metadata of what is known about an object.
func about(obj metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: obj.GetName(), Namespace: obj.GetNamespace(), Labels: obj.GetLabels(), CreationTimestamp: metav1.Now()}
}

// columns are those of the table: metrics-server's.
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
