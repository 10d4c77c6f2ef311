package controllers

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/simulate"
)

var _ = Describe("resource claims", func() {
	It("are made from templates, get devices of a node with their pod, and give them back when it ends", func(ctx SpecContext) {
		p := newPool(ctx)
		p.addNode(ctx, nil)
		withDevices := p.addNode(ctx, nil)
		offer(ctx, p.name, withDevices, "gpu-0")
		template := "gpu"
		claim := func(pod *corev1.Pod) {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: &template}}
			pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
		}
		p.addPod(ctx, "first", claim)
		Eventually(scheduled(ctx, p.name, "first")).Should(ContainSubstring(`waiting for the resource claim of "device" to be made from its template`))
		Eventually(func() string { return run(ctx, "-n", p.name, "describe", "pod", "first") }).Should(And(
			ContainSubstring("FailedResourceClaimCreation"), MatchRegexp(`PodResourceClaim device: resource claim template "gpu": .* not found`)))

		Expect(client.Create(ctx, &resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: template},
			Spec:       resourcev1.ResourceClaimTemplateSpec{Spec: wants(p.name)},
		})).To(Succeed())
		Eventually(nodeOf(ctx, p.name, "first")).Should(Equal(withDevices))
		made := run(ctx, "-n", p.name, "get", "pod", "first", "-o", "jsonpath={.status.resourceClaimStatuses[0].resourceClaimName}")
		Expect(made).To(HavePrefix("first-device-"))
		state := func(what string) func() string {
			return func() string { return run(ctx, "-n", p.name, "get", "resourceclaims", "-o", "jsonpath={"+what+"}") }
		}
		Expect(state(".items[*].status.allocation.devices.results[*].device")()).To(Equal("gpu-0"))
		Expect(state(".items[*].status.reservedFor[*].name")()).To(Equal("first"))

		By("the device is allocated once")
		p.addPod(ctx, "second", func(pod *corev1.Pod) {
			claim(pod)
			pod.Annotations = map[string]string{simulate.ExitAnnotation: "0"}
		})
		Eventually(scheduled(ctx, p.name, "second")).Should(ContainSubstring("2 cannot allocate all claims"))
		run(ctx, "-n", p.name, "delete", "pod", "first")
		Eventually(phaseOf(ctx, p.name, "second")).Should(Equal("Succeeded"))

		By("a pod that has ended needs no claim")
		Eventually(state(".items[*].metadata.name")).Should(BeEmpty())
	})

	It("of several pods keep their devices until the last one has ended, also while the manager is killed", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		offer(ctx, p.name, node, "gpu-0", "gpu-1")
		Expect(client.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: "shared"}, Spec: wants(p.name)})).To(Succeed())
		name := "shared"
		for i := range 5 {
			p.addPod(ctx, fmt.Sprintf("web-%d", i), func(pod *corev1.Pod) {
				request(pod, "100m")
				pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}}
			})
			if i == 2 {
				killManager(ctx)
				startManager(ctx)
			}
		}
		for i := range 5 {
			Eventually(nodeOf(ctx, p.name, fmt.Sprintf("web-%d", i))).Should(Equal(node))
		}
		shared := func() (*resourcev1.ResourceClaim, error) {
			c := &resourcev1.ResourceClaim{}
			return c, client.Get(ctx, ctrlclient.ObjectKey{Namespace: p.name, Name: name}, c)
		}
		Expect(shared()).To(And(HaveField("Status.ReservedFor", HaveLen(5)), HaveField("Status.Allocation.Devices.Results", HaveLen(1)), HaveField("Finalizers", ContainElement(resourcev1.Finalizer))))
		run(ctx, "-n", p.name, "delete", "pod", "web-0", "web-1", "web-2", "web-3")
		Eventually(shared).Should(HaveField("Status.ReservedFor", HaveLen(1)))
		Expect(shared()).To(HaveField("Status.Allocation", Not(BeNil())))
		run(ctx, "-n", p.name, "delete", "resourceclaim", name, "--wait=false")
		Consistently(shared).Should(HaveField("Name", name))
		run(ctx, "-n", p.name, "delete", "pod", "web-4")
		Eventually(func() string { return run(ctx, "-n", p.name, "get", "resourceclaims", "-o", "name") }).Should(BeEmpty())
	})

	It("keep their pod waiting for the node until the driver has attached their devices, also while the manager is killed", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		publish(ctx, p.name, node, resourcev1.Device{
			Name: "gpu-0", BindsToNode: ptr.To(true), BindingConditions: []string{"example.com/attached"}, BindingFailureConditions: []string{"example.com/broken"},
		})
		name := "gpu"
		Expect(client.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: name}, Spec: wants(p.name)})).To(Succeed())
		p.addPod(ctx, "web", func(pod *corev1.Pod) {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}}
		})
		claim := func() (*resourcev1.ResourceClaim, error) {
			c := &resourcev1.ResourceClaim{}
			return c, client.Get(ctx, ctrlclient.ObjectKey{Namespace: p.name, Name: name}, c)
		}
		allocated := And(HaveField("Status.Allocation.Devices.Results", HaveLen(1)), HaveField("Status.ReservedFor", HaveLen(1)), HaveField("Status.Devices", BeEmpty()))
		driverSets := func(condition string) {
			GinkgoHelper()
			Eventually(func() error {
				c, err := claim()
				if err != nil {
					return err
				}
				c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d.example.com", Pool: node, Device: "gpu-0", Conditions: []metav1.Condition{
					{Type: condition, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()},
				}}}
				return client.Status().Update(ctx, c)
			}).Should(Succeed())
		}
		Eventually(claim).Should(allocated)
		first, err := claim()
		Expect(err).NotTo(HaveOccurred())
		Expect(first.Status.Allocation.AllocationTimestamp).NotTo(BeNil())
		Eventually(func() string { return run(ctx, "-n", p.name, "describe", "pod", "web") }).Should(ContainSubstring("BindingConditionsPending"))

		By("two pods share the device that fails")
		p.addPod(ctx, "web2", func(pod *corev1.Pod) {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}}
		})
		both := And(HaveField("Status.Allocation.Devices.Results", HaveLen(1)), HaveField("Status.ReservedFor", HaveLen(2)), HaveField("Status.Devices", BeEmpty()))
		Eventually(claim).Should(both)
		Expect(run(ctx, "-n", p.name, "get", "pod", "web", "web2", "-o", "jsonpath={.items[*].status.nominatedNodeName}")).To(Equal(node + " " + node))
		driverSets("example.com/broken")
		Eventually(claim).Should(both)
		Expect(nodeOf(ctx, p.name, "web")()).To(BeEmpty())

		By("a manager that starts goes on waiting")
		killManager(ctx)
		startManager(ctx)
		Consistently(nodeOf(ctx, p.name, "web")).Should(BeEmpty())
		driverSets("example.com/attached")
		Eventually(nodeOf(ctx, p.name, "web")).Should(Equal(node))
		Eventually(nodeOf(ctx, p.name, "web2")).Should(Equal(node))
	})

	It("are made for extended resources that a device class offers, also while the manager is killed, and deleted with the end of the pod", func(ctx SpecContext) {
		p := newPool(ctx)
		resourceName := "example.com/" + p.name
		p.addNode(ctx, nil)
		withDevices := p.addNode(ctx, nil)
		offer(ctx, p.name, withDevices, "gpu-0", "gpu-1")
		devices := func(count string) func(*corev1.Pod) {
			return func(pod *corev1.Pod) {
				list := corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse(count)}
				pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
			}
		}
		p.addPod(ctx, "first", devices("2"))
		Eventually(scheduled(ctx, p.name, "first")).Should(ContainSubstring("2 Insufficient " + resourceName))
		run(ctx, "patch", "deviceclass", p.name, "--type=merge", fmt.Sprintf(`--patch={"spec":{"extendedResourceName":%q}}`, resourceName))
		Eventually(nodeOf(ctx, p.name, "first")).Should(Equal(withDevices))
		made := func(what string) string {
			return run(ctx, "-n", p.name, "get", "resourceclaims", "-o", "jsonpath={.items[*]"+what+"}")
		}
		name := made(".metadata.name")
		Expect(name).To(HavePrefix("first-extended-resources-"))
		Expect(made(`.metadata.annotations.resource\.kubernetes\.io/extended-resource-claim`)).To(Equal("true"))
		Expect(made(".metadata.ownerReferences[0].name")).To(Equal("first"))
		Expect(made(".spec.devices.requests[0].name")).To(Equal("container-0-request-0"))
		Expect(made(".status.allocation.devices.results[*].device")).To(Equal("gpu-0 gpu-1"))
		Expect(made(".status.reservedFor[*].name")).To(Equal("first"))
		Expect(run(ctx, "-n", p.name, "get", "pod", "first", "-o", "jsonpath={.status.extendedResourceClaimStatus}")).To(MatchJSON(fmt.Sprintf(
			`{"resourceClaimName":%q,"requestMappings":[{"containerName":"web","resourceName":%q,"requestName":"container-0-request-0"}]}`, name, resourceName)))

		By("the devices are allocated once")
		killManager(ctx)
		p.addPod(ctx, "second", func(pod *corev1.Pod) {
			devices("1")(pod)
			pod.Annotations = map[string]string{simulate.ExitAnnotation: "0"}
		})
		p.addPod(ctx, "implicit", func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + p.name): resource.MustParse("1")}
			pod.Annotations = map[string]string{simulate.ExitAnnotation: "0"}
		})
		startManager(ctx)
		Eventually(scheduled(ctx, p.name, "second")).Should(ContainSubstring("2 cannot allocate all claims"))
		Expect(made(".metadata.name")).To(Equal(name))
		run(ctx, "-n", p.name, "delete", "pod", "first")
		for _, pod := range []string{"second", "implicit"} {
			Eventually(phaseOf(ctx, p.name, pod)).Should(Equal("Succeeded"))
		}
		Eventually(func() string { return made(".metadata.name") }).Should(BeEmpty())

		By("a node with a device plugin needs no claim")
		withPlugin := p.addNode(ctx, func(n *corev1.Node) {
			n.Status.Allocatable[corev1.ResourceName(resourceName)] = resource.MustParse("3")
		})
		p.addPod(ctx, "third", devices("3"))
		Eventually(nodeOf(ctx, p.name, "third")).Should(Equal(withPlugin))
		Expect(made(".metadata.name")).To(BeEmpty())
	})

	It("count against quotas by their class, and as the extended resource that it offers", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		offer(ctx, p.name, node, "gpu-0", "gpu-1", "gpu-2")
		resourceName := "example.com/" + p.name
		run(ctx, "patch", "deviceclass", p.name, "--type=merge", fmt.Sprintf(`--patch={"spec":{"extendedResourceName":%q}}`, resourceName))
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourceName("requests." + resourceName):                              resource.MustParse("3"),
			corev1.ResourceName(p.name + corev1.ResourceClaimsPerClass):                  resource.MustParse("3"),
			corev1.ResourceName("count/resourceclaims.resource.k8s.io"):                  resource.MustParse("3"),
			corev1.ResourceName("requests.deviceclass.resource.kubernetes.io/" + p.name): resource.MustParse("3"),
		}}}
		Expect(client.Create(ctx, quota)).To(Succeed())
		used := func() map[string]string {
			Expect(client.Get(ctx, ctrlclient.ObjectKeyFromObject(quota), quota)).To(Succeed())
			all := map[string]string{}
			for name, amount := range quota.Status.Used {
				all[strings.ReplaceAll(string(name), p.name, "CLASS")] = amount.String()
			}
			return all
		}
		uses := func(extended, implicit, devices, claims string) OmegaMatcher {
			return Equal(map[string]string{
				"requests.example.com/CLASS": extended, "requests.deviceclass.resource.kubernetes.io/CLASS": implicit,
				"CLASS.deviceclass.resource.k8s.io/devices": devices, "count/resourceclaims.resource.k8s.io": claims,
			})
		}
		Eventually(used).Should(uses("0", "0", "0", "0"))
		addPod := func(name string) error {
			list := corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse("2")}
			return client.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: name}, Spec: corev1.PodSpec{
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers:  []corev1.Container{{Name: "web", Image: "web", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}},
			}})
		}
		Expect(addPod("first")).To(Succeed())
		Eventually(nodeOf(ctx, p.name, "first")).Should(Equal(node))
		Eventually(used).Should(uses("2", "2", "2", "1"))
		Expect(addPod("second")).To(MatchError(ContainSubstring("exceeded quota: q, requested: requests." + resourceName + "=2")))
		spec := wants(p.name)
		spec.Devices.Requests[0].Exactly.Count = 2
		Expect(client.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: "own"}, Spec: spec})).To(MatchError(And(
			ContainSubstring("exceeded quota: q"), ContainSubstring(p.name+corev1.ResourceClaimsPerClass+"=2"), ContainSubstring("requests."+resourceName+"=2"))))
		spec.Devices.Requests[0].Exactly.Count = 1
		Expect(client.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: "own"}, Spec: spec})).To(Succeed())
		Eventually(used).Should(uses("3", "3", "3", "2"))
		run(ctx, "-n", p.name, "delete", "pod", "first")
		Eventually(used).Should(uses("1", "1", "1", "1"))
	})

	It("lose their pods when a rule taints their devices, also while the manager is killed, and get no tainted device", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		offer(ctx, p.name, node, "gpu-0", "gpu-1", "gpu-2")
		addPod := func(name string, tolerations ...resourcev1.DeviceToleration) {
			spec := wants(p.name)
			spec.Devices.Requests[0].Exactly.Tolerations = tolerations
			Expect(client.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: name}, Spec: spec})).To(Succeed())
			p.addPod(ctx, name, func(pod *corev1.Pod) {
				pod.Finalizers = []string{"example.com/seen"} // so that the condition can be read
				pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}}
			})
		}
		addPod("web")
		addPod("tolerant", resourcev1.DeviceToleration{Key: "example.com/maintenance", Operator: resourcev1.DeviceTolerationOpExists})
		for _, name := range []string{"web", "tolerant"} {
			Eventually(nodeOf(ctx, p.name, name)).Should(Equal(node))
		}
		rule := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Pool: &node},
			Taint:          resourcev1.DeviceTaint{Key: "example.com/maintenance", Effect: resourcev1.DeviceTaintEffectNone},
		}}
		Expect(client.Create(ctx, rule)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, rule))).To(Succeed()) })
		status := func() string {
			return run(ctx, "get", "devicetaintrule", p.name, "-o", "jsonpath={.status.conditions[0].status} {.status.conditions[0].reason}: {.status.conditions[0].message}")
		}
		generation := 0
		Eventually(func() string {
			got := status()
			if strings.HasPrefix(got, "False NoEffect") { // counted once, when caches may not have had all
				generation++
				run(ctx, "patch", "devicetaintrule", p.name, "--type=merge", fmt.Sprintf(`--patch={"spec":{"taint":{"value":"v%d"}}}`, generation))
			}
			return got
		}).Should(HavePrefix("False NoEffect: 3 published devices selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute."))
		deleted := func(name string) func() string {
			return func() string {
				return run(ctx, "-n", p.name, "get", "pod", name, "-o", "jsonpath={.metadata.deletionTimestamp}")
			}
		}
		Consistently(deleted("web")).Should(BeEmpty())

		killManager(ctx)
		run(ctx, "patch", "devicetaintrule", p.name, "--type=merge", `--patch={"spec":{"taint":{"effect":"NoExecute"}}}`)
		startManager(ctx)
		Eventually(deleted("web")).ShouldNot(BeEmpty())
		Expect(run(ctx, "-n", p.name, "get", "pod", "web", "-o", `jsonpath={.status.conditions[?(@.type=="DisruptionTarget")].reason}`)).To(Equal("DeletionByDeviceTaintManager"))
		Eventually(func() string { return run(ctx, "-n", p.name, "describe", "pod", "web") }).Should(MatchRegexp("DeviceTaintManagerEviction .* device-taint-eviction-controller +Marking for deletion"))
		Expect(deleted("tolerant")()).To(BeEmpty())
		Eventually(status).Should(Equal("False Completed: 1 pod evicted since starting the controller."))
		addPod("late")
		Eventually(scheduled(ctx, p.name, "late")).Should(ContainSubstring("cannot allocate all claims"))

		By("without the rule the devices are free of taints")
		Expect(client.Delete(ctx, rule)).To(Succeed())
		Eventually(nodeOf(ctx, p.name, "late")).Should(Equal(node))
		for _, name := range []string{"web", "tolerant", "late"} {
			run(ctx, "-n", p.name, "patch", "pod", name, "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
		}
	})

	It("are counted by a request for the state of pools, which fails for a pool that it cannot express", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, nil)
		broken := resourcev1.DeviceTaint{Key: "example.com/broken", Effect: resourcev1.DeviceTaintEffectNoSchedule}
		publish(ctx, p.name, node, resourcev1.Device{Name: "gpu-0"}, resourcev1.Device{Name: "gpu-1"}, resourcev1.Device{Name: "gpu-2", Taints: []resourcev1.DeviceTaint{broken}})
		first := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-first"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "first.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu-0"}},
		}}
		Expect(client.Create(ctx, first)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.Delete(ctx, first)).To(Succeed()) })
		name := "gpu"
		Expect(client.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: name}, Spec: wants(p.name)})).To(Succeed())
		p.addPod(ctx, "web", func(pod *corev1.Pod) {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}}
		})
		Eventually(nodeOf(ctx, p.name, "web")).Should(Equal(node))

		// A manager that starts has all slices and claims.
		killManager(ctx)
		for _, slice := range []struct{ name, driver string }{{node, "d.example.com"}, {first.Name, first.Spec.Driver}} {
			request := &resourcev1alpha3.ResourcePoolStatusRequest{ObjectMeta: metav1.ObjectMeta{Name: slice.name}, Spec: resourcev1alpha3.ResourcePoolStatusRequestSpec{
				Driver: slice.driver, PoolName: &node,
			}}
			Expect(client.Create(ctx, request)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(client.Delete(ctx, request)).To(Succeed()) })
		}
		startManager(ctx)
		run(ctx, "wait", "--for=condition=Complete", "resourcepoolstatusrequest/"+node)
		Expect(strings.Fields(run(ctx, "get", "resourcepoolstatusrequest", node, "--no-headers"))).To(HaveExactElements(
			node, "d.example.com", "3", "1", "1", "1", "0", "1", "Complete", Not(BeEmpty())))
		run(ctx, "wait", "--for=condition=Failed", "resourcepoolstatusrequest/"+first.Name)
		Expect(run(ctx, "get", "resourcepoolstatusrequest", first.Name, "-o", "jsonpath={.status.conditions[0].message}")).To(ContainSubstring("status.pools[0].generation: Required value"))
	})
})

// offer publishes devices of a node by their names, and a device class for them.
func offer(ctx SpecContext, class, node string, names ...string) {
	GinkgoHelper()
	var devices []resourcev1.Device
	for _, name := range names {
		devices = append(devices, resourcev1.Device{Name: name})
	}
	publish(ctx, class, node, devices...)
}

// publish publishes devices of a node, and a device class for them.
func publish(ctx SpecContext, class, node string, devices ...resourcev1.Device) {
	GinkgoHelper()
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for _, device := range devices {
		device.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"pool": {StringValue: &class}}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	Expect(client.Create(ctx, slice)).To(Succeed())
	object := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{
		{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf(`device.driver == "d.example.com" && device.attributes["d.example.com"].pool == %q`, class)}},
	}}}
	Expect(client.Create(ctx, object)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.Delete(ctx, slice)).To(Succeed())
		Expect(client.Delete(ctx, object)).To(Succeed())
	})
}

// wants is a claim of one device of a class.
func wants(class string) resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}}}}
}

var _ = Describe("a volume attributes class", func() {
	It("is deleted when no claim uses it any more", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		class := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, DriverName: "d.example.com", Parameters: map[string]string{"iops": "100"}}
		Expect(client.Create(ctx, class)).To(Succeed())
		names := func() string {
			return run(ctx, "get", "volumeattributesclasses", ns, "--ignore-not-found", "-o", "jsonpath={.metadata.name}{.metadata.finalizers}")
		}
		Eventually(names).Should(ContainSubstring("kubernetes.io/vac-protection"))
		_, errOut, err := kubectl.Run(ctx, strings.ReplaceAll(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: NAME}
spec: {accessModes: [ReadWriteOnce], storageClassName: none, volumeAttributesClassName: NAME, resources: {requests: {storage: 1Gi}}}
`, "NAME", ns), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred(), errOut)
		Expect(client.Delete(ctx, class)).To(Succeed())
		Consistently(names).Should(HavePrefix(ns))
		run(ctx, "-n", ns, "delete", "pvc", "data")
		Eventually(names).Should(BeEmpty())
	})
})
