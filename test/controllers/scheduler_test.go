package controllers

import (
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("scheduler", func() {
	It("binds a pod to a node, and kubectl shows it", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		p.addPod(ctx, "web", nil)
		Eventually(nodeOf(ctx, p.name, "web")).Should(Equal(node))
		Eventually(phaseOf(ctx, p.name, "web")).Should(Equal("Running"))
		Eventually(func() string { return run(ctx, "-n", p.name, "describe", "pod", "web") }).Should(SatisfyAll(
			MatchRegexp(`PodScheduled +True`),
			MatchRegexp(`Normal +Scheduled +\S+ +default-scheduler +Successfully assigned `+p.name+`/web to `+node),
		))
	})

	It("reports why a pod has no node", func(ctx SpecContext) {
		p := newPool(ctx)
		p.addNode(ctx, nil)
		p.addPod(ctx, "huge", func(p *corev1.Pod) { request(p, "100") })
		const why = `0/\d+ nodes are available: .*1 Insufficient cpu`
		Eventually(scheduled(ctx, p.name, "huge")).Should(MatchRegexp(`^False Unschedulable ` + why))
		Eventually(func() string { return run(ctx, "-n", p.name, "describe", "pod", "huge") }).Should(SatisfyAll(
			MatchRegexp(`PodScheduled +False`),
			MatchRegexp(`Warning +FailedScheduling .*default-scheduler +`+why),
		))
		Expect(run(ctx, "-n", p.name, "get", "pod", "huge")).To(ContainSubstring("Pending"))
	})

	It("writes the condition again when another client has overwritten it, and only then", func(ctx SpecContext) {
		p := newPool(ctx)
		p.addNode(ctx, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		p.addPod(ctx, "web", nil)
		why := MatchRegexp("^False Unschedulable .*node\\(s\\) were unschedulable")
		Eventually(scheduled(ctx, p.name, "web")).Should(why)
		version := podField(ctx, p.name, "web", func(p *corev1.Pod) string { return p.ResourceVersion })
		p.addNode(ctx, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		Eventually(scheduled(ctx, p.name, "web")).Should(ContainSubstring("2 node(s) were unschedulable"))
		Consistently(version).Should(Equal(version()))

		run(ctx, "-n", p.name, "patch", "pod", "web", "--subresource=status", `--patch={"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Nonsense"}]}}`)
		run(ctx, "-n", p.name, "label", "pod", "web", "another=label") // it is tried again
		Eventually(scheduled(ctx, p.name, "web")).Should(why)
	})

	It("does not schedule pods until their gates are removed", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		p.addPod(ctx, "gated", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}} })
		Eventually(scheduled(ctx, p.name, "gated")).Should(HavePrefix("False SchedulingGated"))
		Expect(run(ctx, "-n", p.name, "get", "pod", "gated")).To(ContainSubstring("SchedulingGated"))
		Consistently(nodeOf(ctx, p.name, "gated")).Should(BeEmpty())
		run(ctx, "-n", p.name, "patch", "pod", "gated", "--type=json", `--patch=[{"op":"remove","path":"/spec/schedulingGates"}]`)
		Eventually(nodeOf(ctx, p.name, "gated")).Should(Equal(node))
	})

	It("retries an unschedulable pod when a node is uncordoned", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		run(ctx, "cordon", node)
		p.addPod(ctx, "web", nil)
		Eventually(scheduled(ctx, p.name, "web")).Should(ContainSubstring("node(s) were unschedulable"))
		run(ctx, "uncordon", node)
		Eventually(nodeOf(ctx, p.name, "web")).Should(Equal(node))
	})

	It("retries an unschedulable pod when a taint is removed", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		run(ctx, "taint", "node", node, "example.com/maintenance=now:NoSchedule")
		p.addPod(ctx, "web", nil)
		Eventually(scheduled(ctx, p.name, "web")).Should(ContainSubstring("untolerated taint"))
		run(ctx, "taint", "node", node, "example.com/maintenance-")
		Eventually(nodeOf(ctx, p.name, "web")).Should(Equal(node))
	})

	It("retries unschedulable pods when a node is created", func(ctx SpecContext) {
		p := newPool(ctx)
		for i := range 5 {
			p.addPod(ctx, fmt.Sprint("web-", i), nil)
		}
		Eventually(scheduled(ctx, p.name, "web-4")).Should(HavePrefix("False Unschedulable"))
		p.addNode(ctx, nil)
		Eventually(p.bound(ctx)).Should(Equal(4))
		p.addNode(ctx, nil)
		Eventually(p.bound(ctx)).Should(Equal(5))
	})

	It("gives the resources of a deleted or terminated pod to the unschedulable pod of highest priority", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		large := func(p *corev1.Pod) { request(p, "3") }
		p.addPod(ctx, "first", large)
		Eventually(nodeOf(ctx, p.name, "first")).Should(Equal(node))
		p.addPod(ctx, "low", large)
		Eventually(scheduled(ctx, p.name, "low")).Should(ContainSubstring("Insufficient cpu"))
		patient := p.addPriority(ctx, 1000, corev1.PreemptNever)
		p.addPod(ctx, "high", func(p *corev1.Pod) { large(p); p.Spec.PriorityClassName = patient })
		Eventually(scheduled(ctx, p.name, "high")).Should(ContainSubstring("Insufficient cpu"))

		run(ctx, "-n", p.name, "delete", "pod", "first")
		Eventually(nodeOf(ctx, p.name, "high")).Should(Equal(node))
		Consistently(nodeOf(ctx, p.name, "low")).Should(BeEmpty())
		run(ctx, "-n", p.name, "annotate", "pod", "high", "simulate.svc.dev/exit-code=0")
		Eventually(nodeOf(ctx, p.name, "low")).Should(Equal(node))
	})

	It("deletes pods of lower priority for a pod that fits no node, and nominates it", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		for _, name := range []string{"web-0", "web-1", "kept"} {
			p.addPod(ctx, name, nil)
		}
		Eventually(p.bound(ctx)).Should(Equal(3))
		Expect(client.Create(ctx, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: "kept"},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"kept": ""}},
			},
		})).To(Succeed())
		run(ctx, "-n", p.name, "label", "pod", "kept", "kept=")
		nodes.Kill(node) // so that the victims do not end at once

		urgent := p.addPriority(ctx, 1000, corev1.PreemptLowerPriority)
		p.addPod(ctx, "urgent", func(p *corev1.Pod) { request(p, "3"); p.Spec.PriorityClassName = urgent })
		nominated := podField(ctx, p.name, "urgent", func(p *corev1.Pod) string { return p.Status.NominatedNodeName })
		Eventually(nominated).Should(Equal(node))
		Eventually(podField(ctx, p.name, "web-0", disrupted)).Should(Equal("PreemptionByScheduler default-scheduler: preempting to accommodate a higher priority pod"))
		Eventually(podField(ctx, p.name, "web-1", disrupted)).Should(HavePrefix("PreemptionByScheduler"))

		// Its victims terminate: no other pod gets the place, and it deletes no more pods.
		p.addPod(ctx, "greedy", func(p *corev1.Pod) { request(p, "1") })
		Eventually(scheduled(ctx, p.name, "greedy")).Should(ContainSubstring("Insufficient cpu"))
		run(ctx, "-n", p.name, "label", "pod", "urgent", "try=again")
		Eventually(scheduled(ctx, p.name, "urgent")).Should(ContainSubstring("not eligible due to a terminating pod on the nominated node."))
		Expect(nominated()).To(Equal(node))

		run(ctx, "-n", p.name, "delete", "pod", "web-0", "web-1", "--force")
		Eventually(nodeOf(ctx, p.name, "urgent")).Should(Equal(node))
		Expect(nodeOf(ctx, p.name, "kept")()).To(Equal(node))
		Expect(nodeOf(ctx, p.name, "greedy")()).To(BeEmpty())
		Eventually(func() string {
			return run(ctx, "-n", p.name, "get", "events", "--field-selector=involvedObject.name=web-1,reason=Preempted")
		}).Should(
			MatchRegexp(`Preempted by pod \S+ on node ` + node))
	})

	It("ignores the pods of other schedulers", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		p.addPod(ctx, "theirs", func(p *corev1.Pod) { p.Spec.SchedulerName = "another-scheduler"; request(p, "3") })
		p.addPod(ctx, "ours", nil)
		Eventually(nodeOf(ctx, p.name, "ours")).Should(Equal(node))
		Expect(scheduled(ctx, p.name, "theirs")()).To(Equal("none"))

		// What they bind counts.
		Expect(bind(ctx, p.name, "theirs", node)).To(Succeed())
		p.addPod(ctx, "more", nil)
		Eventually(scheduled(ctx, p.name, "more")).Should(ContainSubstring("Insufficient cpu"))
	})

	It("schedules while another client binds the same pods", func(ctx SpecContext) {
		p := newPool(ctx)
		var names []string
		for range 3 {
			names = append(names, p.addNode(ctx, nil))
		}
		for i := range 12 {
			name := fmt.Sprint("web-", i)
			p.addPod(ctx, name, nil)
			if err := bind(ctx, p.name, name, names[0]); err != nil {
				Expect(err).To(Satisfy(apierrors.IsConflict))
			}
		}
		// The node that the other one chooses may be too full; ours never are.
		Eventually(p.bound(ctx)).Should(BeNumerically(">=", 8))
		counts := p.counts(ctx, corev1.LabelHostname)
		for _, node := range names[1:] {
			Expect(counts[node]).To(BeNumerically("<=", 4))
		}
	})

	It("keeps pods with anti-affinity apart", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		p.addNode(ctx, nil)
		p.addNode(ctx, nil)
		for i := range 4 {
			p.addPod(ctx, fmt.Sprint("web-", i), func(pod *corev1.Pod) {
				pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: webs(), TopologyKey: corev1.LabelHostname}},
				}}
			})
		}
		Eventually(p.bound(ctx)).Should(Equal(3))
		for _, count := range p.counts(ctx, corev1.LabelHostname) {
			Expect(count).To(Equal(1))
		}
		Eventually(func() string { return run(ctx, "-n", p.name, "describe", "pods", "--show-events") }).Should(ContainSubstring("3 node(s) didn't match pod anti-affinity rules"))
		// A pod that is deleted makes room for another.
		run(ctx, "-n", p.name, "delete", "pod", "--field-selector=spec.nodeName="+node)
		Eventually(p.bound(ctx)).Should(Equal(3))
	})

	It("binds a pod beside the pod that its affinity requires, once that exists", func(ctx SpecContext) {
		p := newPool(ctx)
		for range 3 {
			p.addNode(ctx, nil)
		}
		p.addPod(ctx, "client", func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"app": "client"}
			pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: webs(), TopologyKey: corev1.LabelHostname}},
			}}
		})
		Eventually(scheduled(ctx, p.name, "client")).Should(ContainSubstring("didn't match pod affinity rules"))
		p.addPod(ctx, "web", nil)
		Eventually(nodeOf(ctx, p.name, "client")).ShouldNot(BeEmpty())
		Expect(nodeOf(ctx, p.name, "client")()).To(Equal(nodeOf(ctx, p.name, "web")()))
	})

	It("spreads pods over zones", func(ctx SpecContext) {
		p := newPool(ctx)
		for i := range 6 {
			p.addNode(ctx, func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("%s-%d", p.name, i%3) })
		}
		for i := range 12 {
			p.addPod(ctx, fmt.Sprint("web-", i), func(pod *corev1.Pod) {
				pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: webs(),
				}}
			})
		}
		Eventually(p.bound(ctx)).Should(Equal(12))
		for _, count := range p.counts(ctx, corev1.LabelTopologyZone) {
			Expect(count).To(Equal(4))
		}
	})

	It("selects the node for a volume's provisioner, and binds the pod when the volume exists", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		class := &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: p.name}, Provisioner: "example.com/disks",
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		}
		Expect(client.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.Delete(ctx, class)).To(Succeed()) })
		p.addPod(ctx, "db", func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}}
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		})
		Eventually(scheduled(ctx, p.name, "db")).Should(ContainSubstring(`persistentvolumeclaim "data" not found`))
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class.Name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}
		Expect(client.Create(ctx, claim)).To(Succeed())
		Eventually(func() string {
			Expect(client.Get(ctx, ctrlclient.ObjectKeyFromObject(claim), claim)).To(Succeed())
			return claim.Annotations["volume.kubernetes.io/selected-node"]
		}).Should(Equal(node))

		// The pod keeps its place on the node, and waits.
		p.addPod(ctx, "greedy", func(p *corev1.Pod) { request(p, "4") })
		Eventually(scheduled(ctx, p.name, "greedy")).Should(ContainSubstring("Insufficient cpu"))
		Expect(nodeOf(ctx, p.name, "db")()).To(BeEmpty())

		// What the provisioner does.
		pv := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: p.name},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: class.Name,
				ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: p.name, Name: "data", UID: claim.UID},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: p.name}},
			},
		}
		Expect(client.Create(ctx, pv)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, pv))).To(Succeed()) })
		Eventually(nodeOf(ctx, p.name, "db")).Should(Equal(node))
	})

	It("binds every pod once when the leader is killed while it schedules", func(ctx SpecContext) {
		p := newPool(ctx)
		for range 10 {
			p.addNode(ctx, func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("32") })
		}
		standby, err := server.StandbyManager(managerFlags...)
		Expect(err).NotTo(HaveOccurred())
		var creating sync.WaitGroup
		for i := range 300 {
			creating.Go(func() {
				defer GinkgoRecover()
				p.addPod(ctx, fmt.Sprint("web-", i), nil)
			})
		}
		Eventually(p.bound(ctx)).Should(BeNumerically(">", 20))
		manager.Kill()
		manager, managerLogged = standby, 0
		creating.Wait()
		Eventually(p.bound(ctx)).Should(Equal(300))
		for node, count := range p.counts(ctx, corev1.LabelHostname) {
			Expect(count).To(BeNumerically("<=", 32), node)
		}
	})

	It("continues after it was killed", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		p.addPod(ctx, "first", func(p *corev1.Pod) { request(p, "3") })
		Eventually(nodeOf(ctx, p.name, "first")).Should(Equal(node))
		p.addPod(ctx, "second", func(p *corev1.Pod) { request(p, "3") })
		Eventually(scheduled(ctx, p.name, "second")).Should(ContainSubstring("Insufficient cpu"))
		killManager(ctx)
		run(ctx, "-n", p.name, "delete", "pod", "first")
		startManager(ctx)
		Eventually(nodeOf(ctx, p.name, "second")).Should(Equal(node))
	})
})

// pool is a namespace and nodes for the pods of it alone.
type pool struct {
	name  string
	nodes int
}

func newPool(ctx SpecContext) *pool {
	GinkgoHelper()
	return &pool{name: newNamespace(ctx)}
}

const poolLabel = "pool"

// addNode adds a node with four processors.
func (p *pool) addNode(ctx SpecContext, change func(*corev1.Node)) string {
	GinkgoHelper()
	name := fmt.Sprintf("%s-%d", p.name, p.nodes)
	p.nodes++
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

// addPod adds a pod that wants one processor of one of the pool's nodes.
func (p *pool) addPod(ctx SpecContext, name string, change func(*corev1.Pod)) {
	GinkgoHelper()
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
	Expect(client.Create(ctx, pod)).To(Succeed())
}

// disrupted reads the condition DisruptionTarget: reason and message.
func disrupted(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return c.Reason + " " + c.Message
		}
	}
	return "none"
}

// addPriority adds a priority class, and returns its name.
func (p *pool) addPriority(ctx SpecContext, value int32, policy corev1.PreemptionPolicy) string {
	GinkgoHelper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Value: value, PreemptionPolicy: &policy}
	Expect(client.Create(ctx, class)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.Delete(ctx, class)).To(Succeed()) })
	return class.Name
}

// webs selects the pods of a pool.
func webs() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

// request lets a pod want processors.
func request(pod *corev1.Pod, cpu string) {
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

// counts are the pods that have a node, by a label of their nodes.
func (p *pool) counts(ctx SpecContext, label string) map[string]int {
	GinkgoHelper()
	var machines corev1.NodeList
	Expect(client.List(ctx, &machines, ctrlclient.MatchingLabels{poolLabel: p.name})).To(Succeed())
	values := map[string]string{}
	for _, n := range machines.Items {
		values[n.Name] = n.Labels[label]
	}
	var pods corev1.PodList
	Expect(client.List(ctx, &pods, ctrlclient.InNamespace(p.name))).To(Succeed())
	counts := map[string]int{}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			counts[values[pod.Spec.NodeName]]++
		}
	}
	return counts
}

// bound counts the pods that have a node.
func (p *pool) bound(ctx SpecContext) func() int {
	return func() int {
		total := 0
		for _, count := range p.counts(ctx, corev1.LabelHostname) {
			total += count
		}
		return total
	}
}

// bind puts a pod on a node, as another scheduler would.
func bind(ctx SpecContext, namespace, name, node string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return client.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}})
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
