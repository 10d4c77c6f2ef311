package controllers

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("the pods of a PodGroup", Ordered, func() {
	const gate = "--feature-gates=GenericWorkload=true,WorkloadWithJob=true"
	var c *cluster
	BeforeAll(func(ctx SpecContext) {
		c = newClusterOf(ctx, []string{"--release=1.37", gate, "--runtime-config=scheduling.k8s.io/v1beta1=true"}, gate)
	})

	// places adds nodes with room for two of the pods each.
	places := func(ctx SpecContext, names ...string) {
		GinkgoHelper()
		c.addNodes(ctx, func(n *corev1.Node) {
			n.Status.Allocatable = n.Status.Allocatable.DeepCopy()
			n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("2")
		}, names...)
	}
	gang := func(ctx SpecContext, name string, minCount int32) *schedulingv1beta1.PodGroup {
		GinkgoHelper()
		group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}
		Expect(c.client.Create(ctx, group)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(ctrlclient.IgnoreNotFound(c.client.Delete(ctx, group))).To(Succeed()) })
		return group
	}
	addPod := func(ctx SpecContext, group string, number int) {
		GinkgoHelper()
		c.addPod(ctx, fmt.Sprintf("%s-%d", group, number), "", func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"group": group}
			pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
			request(pod, "1")
		})
	}
	addPods := func(ctx SpecContext, group string, count int) {
		GinkgoHelper()
		for i := range count {
			addPod(ctx, group, i)
		}
	}
	bound := func(ctx SpecContext, group string) func() (int, error) {
		return func() (int, error) {
			var pods corev1.PodList
			err := c.client.List(ctx, &pods, ctrlclient.InNamespace("default"), ctrlclient.MatchingLabels{"group": group})
			n := 0
			for _, pod := range pods.Items {
				if pod.Spec.NodeName != "" {
					n++
				}
			}
			return n, err
		}
	}
	condition := func(ctx SpecContext, group string) func() string {
		return c.printed(ctx, "get", "podgroup", group, "-o", "jsonpath={.status.conditions[*].type} {.status.conditions[*].status} {.status.conditions[*].reason} {.status.conditions[*].message}")
	}

	It("wait until the gang is complete, and get nodes only if enough of them fit at the same time", func(ctx SpecContext) {
		places(ctx, "room-a")
		addPods(ctx, "train", 2)
		Consistently(bound(ctx, "train")).Should(BeZero(), "the group does not exist")
		gang(ctx, "train", 3)
		Consistently(bound(ctx, "train")).Should(BeZero(), "the gang needs three pods")
		Expect(c.run(ctx, "get", "pod", "train-0", "-o", "jsonpath={.status.conditions}")).To(BeEmpty())
		addPod(ctx, "train", 2)

		const why = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
		Eventually(condition(ctx, "train")).Should(HavePrefix("PodGroupInitiallyScheduled False Unschedulable " + why))
		Expect(c.run(ctx, "get", "podgroup", "train")).To(MatchRegexp(`train +Gang +<none> +Unschedulable`))
		Eventually(c.printed(ctx, "get", "events", "--field-selector=reason=FailedScheduling", "-o", `jsonpath={range .items[*]}{.message}{"\n"}{end}`)).Should(And(
			ContainSubstring(why), ContainSubstring("0/1 nodes are available: 1 Insufficient cpu.")))
		Expect(bound(ctx, "train")()).To(BeZero())

		places(ctx, "room-b")
		Eventually(bound(ctx, "train")).Should(Equal(3))
		Eventually(condition(ctx, "train")).Should(Equal("PodGroupInitiallyScheduled True Scheduled "))
		Expect(c.run(ctx, "get", "podgroup", "train")).To(MatchRegexp(`train +Gang +<none> +Scheduled`))
	})

	It("of two gangs do not take the places that the other one needs, also when the manager is killed", func(ctx SpecContext) {
		places(ctx, "room-c", "room-d")
		for _, name := range []string{"left", "right"} {
			gang(ctx, name, 3)
		}
		for i := range 3 {
			for _, name := range []string{"left", "right"} {
				addPod(ctx, name, i)
			}
			if i == 1 {
				c.killManager(ctx)
				c.startManager(ctx)
			}
		}
		both := func() (all []int, err error) {
			for _, name := range []string{"left", "right"} {
				n, err := bound(ctx, name)()
				if err != nil {
					return nil, err
				}
				all = append(all, n)
			}
			return all, nil
		}
		Eventually(both).Should(ConsistOf(0, 3))
		Consistently(both).Should(ConsistOf(0, 3))
		first, second := "left", "right"
		if n, err := bound(ctx, "right")(); err == nil && n == 3 {
			first, second = second, first
		}
		c.run(ctx, "delete", "pods", "-l", "group="+first, "--wait=false")
		Eventually(bound(ctx, second)).Should(Equal(3))
	})

	It("are all bound, each once, if the manager is killed while it binds them", func(ctx SpecContext) {
		const size = 40
		names := make([]string, size/2)
		for i := range names {
			names[i] = fmt.Sprintf("many-%d", i)
		}
		places(ctx, names...)
		gang(ctx, "large", size)
		addPods(ctx, "large", size-1)
		c.killManager(ctx)
		addPod(ctx, "large", size-1)
		c.startManager(ctx)
		Eventually(bound(ctx, "large")).Should(BeNumerically(">", 0))
		c.killManager(ctx)
		c.startManager(ctx)
		Eventually(bound(ctx, "large")).Should(Equal(size))
		Eventually(condition(ctx, "large")).Should(HavePrefix("PodGroupInitiallyScheduled True Scheduled"))
	})

	It("take the places of pods of lower priority together", func(ctx SpecContext) {
		places(ctx, "room-g")
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 10}
		Expect(c.client.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(c.client.Delete(ctx, class)).To(Succeed()) })
		for i := range 2 {
			c.addPod(ctx, fmt.Sprintf("low-%d", i), "room-g", func(pod *corev1.Pod) { request(pod, "1") })
		}
		group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "urgent"}}
		group.Spec.PriorityClassName = class.Name
		group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
		Expect(c.client.Create(ctx, group)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(ctrlclient.IgnoreNotFound(c.client.Delete(ctx, group))).To(Succeed()) })
		for i := range 2 {
			c.addPod(ctx, fmt.Sprintf("urgent-%d", i), "", func(pod *corev1.Pod) {
				pod.Labels = map[string]string{"group": "urgent"}
				pod.Spec.PriorityClassName = class.Name
				pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group.Name}
				request(pod, "1")
			})
		}
		Eventually(bound(ctx, "urgent")).Should(Equal(2))
		Expect(c.run(ctx, "get", "pods", "--ignore-not-found", "-o", "name", "low-0", "low-1")).To(BeEmpty())
		Expect(c.run(ctx, "get", "events", "--field-selector=reason=Preempted", "-o", "jsonpath={.items[*].involvedObject.name}")).To(And(ContainSubstring("low-0"), ContainSubstring("low-1")))
	})

	It("of a job are a gang if the job says so, and go with the job", func(ctx SpecContext) {
		places(ctx, "room-f")
		job := func(parallelism int) {
			GinkgoHelper()
			_, errOut, err := c.kubectl.Run(ctx, fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: batch}
spec:
  parallelism: %d
  scheduling: {schedulingPolicy: {gang: {}}}
  template:
    metadata: {labels: {group: batch}}
    spec:
      restartPolicy: Never
      containers: [{name: app, image: app, resources: {requests: {cpu: "1"}}}]
`, parallelism), "apply", "-f", "-")
			Expect(err).NotTo(HaveOccurred(), errOut)
		}
		job(3)
		Eventually(c.printed(ctx, "get", "podgroups", "-o", "jsonpath={.items[*].spec.schedulingPolicy}")).Should(Equal(`{"gang":{"minCount":3}}`))
		c.killManager(ctx)
		c.startManager(ctx)
		Eventually(c.printed(ctx, "get", "podgroups")).Should(MatchRegexp(`batch-\S+-batch-pgt-0-\S+ +Gang +batch-\S+ +Unschedulable`))
		Expect(bound(ctx, "batch")()).To(BeZero())
		Expect(c.run(ctx, "get", "workloads,podgroups", "-o", "name")).To(MatchRegexp(`^workload\S+\npodgroup\S+\n$`), "one of each, though the manager was killed")

		By("fewer pods fit")
		job(2)
		Eventually(bound(ctx, "batch")).Should(Equal(2))
		Expect(c.run(ctx, "get", "podgroups", "-o", "jsonpath={.items[*].spec.schedulingPolicy}")).To(Equal(`{"gang":{"minCount":2}}`))
		c.run(ctx, "delete", "job", "batch")
		Eventually(c.printed(ctx, "get", "workloads,podgroups,pods", "-l", "group!=kept", "-o", "name")).Should(BeEmpty())
	})

	It("keep the group until none of them runs any more", func(ctx SpecContext) {
		places(ctx, "room-e")
		group := gang(ctx, "kept", 1)
		Expect(group.Finalizers).To(ConsistOf("scheduling.k8s.io/podgroup-protection"), "by admission")
		addPods(ctx, "kept", 1)
		Eventually(bound(ctx, "kept")).Should(Equal(1))
		c.run(ctx, "delete", "podgroup", "kept", "--wait=false")
		c.killManager(ctx)
		c.startManager(ctx)
		Consistently(c.printed(ctx, "get", "podgroup", "kept", "-o", "jsonpath={.metadata.finalizers}")).Should(ContainSubstring("podgroup-protection"))
		c.run(ctx, "delete", "pod", "kept-0")
		Eventually(c.printed(ctx, "get", "podgroup", "--ignore-not-found", "-o", "name", "kept")).Should(BeEmpty())
	})
})
