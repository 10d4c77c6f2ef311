package controllers

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("scheduler", func() {
	It("gives a pod a node, and kubectl tells which", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		pool := newPool(ctx, ns)
		node := pool.add(ctx, nil)
		Expect(client.Create(ctx, pool.pod("web", nil))).To(Succeed())
		Eventually(nodeOf(ctx, ns, "web")).Should(Equal(node))
		Eventually(phaseOf(ctx, ns, "web")).Should(Equal("Running"))
		Eventually(func() string { return run(ctx, "-n", ns, "describe", "pod", "web") }).Should(SatisfyAll(
			MatchRegexp(`PodScheduled +True`),
			MatchRegexp(`Normal +Scheduled +\S+ +default-scheduler +Successfully assigned `+ns+`/web to `+node),
		))
	})

	It("tells why a pod has no node", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		pool := newPool(ctx, ns)
		pool.add(ctx, nil)
		Expect(client.Create(ctx, pool.pod("huge", func(p *corev1.Pod) { request(p, "100") }))).To(Succeed())
		Eventually(scheduled(ctx, ns, "huge")).Should(MatchRegexp(`^False Unschedulable 0/\d+ nodes are available: .*1 Insufficient cpu`))
		Eventually(func() string { return run(ctx, "-n", ns, "describe", "pod", "huge") }).Should(
			MatchRegexp(`Warning +FailedScheduling +\S+ +default-scheduler +0/\d+ nodes are available: .*1 Insufficient cpu`))
	})
})

// pool is the nodes of a spec, which no other spec's pods use.
type pool struct{ name string }

func newPool(_ SpecContext, namespace string) *pool { return &pool{namespace} }

const poolLabel = "pool"

// add adds a node with four processors.
func (p *pool) add(ctx SpecContext, change func(*corev1.Node)) string {
	GinkgoHelper()
	var others corev1.NodeList
	Expect(client.List(ctx, &others, ctrlclient.MatchingLabels{poolLabel: p.name})).To(Succeed())
	name := fmt.Sprintf("%s-%d", p.name, len(others.Items))
	Expect(nodes.Add(ctx, name, func(n *corev1.Node) {
		n.Labels[poolLabel] = p.name
		n.Spec.Taints = []corev1.Taint{{Key: poolLabel, Value: p.name, Effect: corev1.TaintEffectNoSchedule}}
		n.Status.Allocatable = n.Status.Allocatable.DeepCopy()
		n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("4")
		if change != nil {
			change(n)
		}
	})).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		nodes.Kill(name)
		Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))).To(Succeed())
	})
	return name
}

// pod is a pod that wants one processor of one of the pool's nodes.
func (p *pool) pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{poolLabel: p.name},
			Tolerations:  []corev1.Toleration{{Key: poolLabel, Operator: corev1.TolerationOpExists}},
			Containers:   []corev1.Container{{Name: "web", Image: "web"}},
		},
	}
	request(pod, "1")
	if change != nil {
		change(pod)
	}
	return pod
}

// request lets a pod want processors.
func request(pod *corev1.Pod, cpu string) {
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

func podField(ctx SpecContext, namespace, name string, field func(*corev1.Pod) string) func() string {
	return func() string {
		pod := &corev1.Pod{}
		if err := client.Get(ctx, ctrlclient.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
			return err.Error()
		}
		return field(pod)
	}
}

func nodeOf(ctx SpecContext, namespace, name string) func() string {
	return podField(ctx, namespace, name, func(p *corev1.Pod) string { return p.Spec.NodeName })
}

func phaseOf(ctx SpecContext, namespace, name string) func() string {
	return podField(ctx, namespace, name, func(p *corev1.Pod) string { return string(p.Status.Phase) })
}

// scheduled reads the condition PodScheduled: status, reason and message.
func scheduled(ctx SpecContext, namespace, name string) func() string {
	return podField(ctx, namespace, name, func(p *corev1.Pod) string {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
			}
		}
		return "none"
	})
}
