package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/controllers/scheduler/configfile"
)

// BenchmarkCore measures the core with 1,000 nodes in three zones: a pod is created,
// decided on, and observed with its node.
func BenchmarkCore(b *testing.B) {
	nodes := func(c *core) {
		for i := range 1000 {
			name := fmt.Sprint("node-", i)
			c.nodeChanged(nil, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
					corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3),
				}},
				Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1000Gi"), corev1.ResourcePods: resource.MustParse("10000"),
				}},
			})
		}
	}
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for name, change := range map[string]func(*corev1.Pod){
		"plain": func(*corev1.Pod) {},
		"spread": func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: web,
			}}
		},
		"preferably apart": func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
					Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: web, TopologyKey: corev1.LabelHostname},
				}},
			}}
		},
		"unschedulable": func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} },
	} {
		b.Run(name, func(b *testing.B) {
			c := newCore(configfile.Default("default-scheduler"), time.Now, rand.IntN)
			nodes(c)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint(i)), Labels: web.MatchLabels},
					Spec: corev1.PodSpec{
						SchedulerName: "default-scheduler",
						Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
							corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
						}}}},
					},
				}
				change(pod)
				c.podChanged(nil, pod)
				s, _ := c.next()
				if s.assumed != nil {
					c.podChanged(pod, s.assumed)
				}
			}
		})
	}
}
