package node

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("the resources of a running pod", func() {
	// limits returns the limits of the pod's cgroup and of its container, as the kernel
	// has them: memory, and the CPU time of 100 ms.
	limits := func(ctx SpecContext, s space, p *corev1.Pod) func() (string, error) {
		return func() (string, error) {
			of, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/memory", node.Bridge, "kubepods/burstable/pod"+string(p.UID), "memory.limit_in_bytes"))
			if err != nil {
				return "", err
			}
			own, err := s.try(ctx, "exec", p.Name, "--", "cat", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
			return string(of) + own, err
		}
	}
	resize := func(ctx SpecContext, s space, pod, resources string) {
		GinkgoHelper()
		s.run(ctx, "patch", "pod", pod, "--subresource=resize", "--patch", `{"spec":{"containers":[{"name":"main","resources":`+resources+`}]}}`)
	}
	settled := And(Not(haveCondition(corev1.PodResizeInProgress, corev1.ConditionTrue)), Not(haveCondition(corev1.PodResizePending, corev1.ConditionTrue)))

	It("change in place, or with a restart, as its containers want it", func(ctx SpecContext) {
		if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
			Skip("the files are those of cgroup v1")
		}
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: elastic}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sleep, "1000"]
    resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}
    resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: memory, restartPolicy: NotRequired}]
---
apiVersion: v1
kind: Pod
metadata: {name: rigid}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sleep, "1000"]
    resources: {requests: {memory: 32Mi}, limits: {memory: 64Mi}}
    resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
`)
		elastic, rigid := s.await(ctx, "elastic", beReady()), s.await(ctx, "rigid", beReady())
		Eventually(limits(ctx, s, elastic)).Should(Equal("67108864\n67108864\n10000\n"))

		resize(ctx, s, "elastic", `{"requests":{"memory":"64Mi"},"limits":{"cpu":"200m","memory":"128Mi"}}`)
		Eventually(limits(ctx, s, elastic)).Should(Equal("134217728\n134217728\n20000\n"))
		p := s.await(ctx, "elastic", And(settled, container("main", And(
			HaveField("RestartCount", BeZero()),
			HaveField("Resources.Limits", HaveKeyWithValue(corev1.ResourceMemory, HaveField("String()", "128Mi"))),
			HaveField("AllocatedResources", HaveKeyWithValue(corev1.ResourceMemory, HaveField("String()", "64Mi")))))))
		Expect(containerID(p, "main")).To(Equal(containerID(elastic, "main")))
		Eventually(s.events(ctx, "elastic")).Should(ContainElements(HavePrefix("ResizeStarted"), HavePrefix("ResizeCompleted")))

		resize(ctx, s, "elastic", `{"limits":{"memory":"96Mi"}}`)
		Eventually(limits(ctx, s, elastic)).Should(Equal("100663296\n100663296\n20000\n"))

		resize(ctx, s, "rigid", `{"limits":{"memory":"128Mi"}}`)
		s.await(ctx, "rigid", And(settled, beReady(), container("main", HaveField("RestartCount", BeEquivalentTo(1)))))
		Expect(s.run(ctx, "exec", "rigid", "--", "cat", "/sys/fs/cgroup/memory/memory.limit_in_bytes")).To(Equal("134217728\n"))
		Expect(s.await(ctx, "rigid", beReady()).UID).To(Equal(rigid.UID))
	})

	It("stay as they are while the node lacks them, and where it uses more", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: hungry}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "localhost/svc/server:1", resources: {requests: {cpu: 50m, memory: 10Mi}, limits: {memory: 200Mi}}}
`)
		s.await(ctx, "hungry", beReady())
		resize(ctx, s, "hungry", `{"requests":{"cpu":"1000"}}`)
		p := s.await(ctx, "hungry", haveCondition(corev1.PodResizePending, corev1.ConditionTrue))
		Expect(p.Status.Resize).To(Equal(corev1.PodResizeStatusInfeasible))
		Expect(s.run(ctx, "describe", "pod", "hungry")).To(ContainSubstring("Node didn't have enough capacity: cpu, requested: 1000000, capacity: "))
		Expect(p).To(container("main", HaveField("AllocatedResources", HaveKeyWithValue(corev1.ResourceCPU, HaveField("String()", "50m")))))
		resize(ctx, s, "hungry", `{"requests":{"cpu":"50m"}}`)
		s.await(ctx, "hungry", settled)

		post(ctx, "http://"+p.Status.PodIP+":8080/hog?mib=100")
		resize(ctx, s, "hungry", `{"limits":{"memory":"50Mi"}}`)
		s.await(ctx, "hungry", HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", corev1.PodResizeInProgress), HaveField("Reason", corev1.PodReasonError),
			HaveField("Message", ContainSubstring("below current usage"))))))
		resize(ctx, s, "hungry", `{"limits":{"memory":"200Mi"}}`)
		s.await(ctx, "hungry", And(settled, beReady(), container("main", HaveField("RestartCount", BeZero()))))
	})
})
