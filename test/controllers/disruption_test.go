package controllers

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

var _ = Describe("disruption", func() {
	var ns string
	BeforeEach(func(ctx SpecContext) {
		ns = newNamespace(ctx)
		addNode(ctx, ns, nil)
	})

	It("allows a drain only as far as the budget does", func(ctx SpecContext) {
		run(ctx, "-n", ns, "create", "poddisruptionbudget", "web", "--selector=app="+ns, "--min-available=2")
		Eventually(budget(ctx, ns)).Should(Equal("0 of 0 healthy, needs 2, allows 0: False InsufficientPods"))
		Expect(run(ctx, "-n", ns, "describe", "pdb", "web")).To(ContainSubstring("No matching pods found"))
		for _, name := range []string{"a", "b", "c"} {
			Expect(client.Create(ctx, boundPod(ns, name, ns))).To(Succeed())
		}
		Eventually(budget(ctx, ns)).Should(Equal("3 of 3 healthy, needs 2, allows 1: True SufficientPods"))

		command, err := kubectl.Command(ctx, "drain", ns, "--force", "--disable-eviction=false", "--pod-selector=app="+ns)
		Expect(err).NotTo(HaveOccurred())
		drain, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { drain.Kill().Wait(launch.Patience) })
		Eventually(drain.Err).Should(gbytes.Say("Cannot evict pod as it would violate the pod's disruption budget."))
		Eventually(budget(ctx, ns)).Should(Equal("2 of 2 healthy, needs 2, allows 0: False InsufficientPods"))
		drain.Kill().Wait(launch.Patience)

		By("going on when there are other pods")
		addNode(ctx, ns+"-2", nil)
		for _, name := range []string{"d", "e"} {
			Expect(client.Create(ctx, boundPod(ns, name, ns+"-2"))).To(Succeed())
		}
		Eventually(budget(ctx, ns)).Should(Equal("4 of 4 healthy, needs 2, allows 2: True SufficientPods"))
		run(ctx, "drain", ns, "--force", "--timeout=5m", "--pod-selector=app="+ns)
		Eventually(budget(ctx, ns)).Should(Equal("2 of 2 healthy, needs 2, allows 0: False InsufficientPods"))
	})

	It("evicts unhealthy pods according to unhealthyPodEvictionPolicy", func(ctx SpecContext) {
		for _, name := range []string{"a", "b"} {
			Expect(client.Create(ctx, boundPod(ns, name, ns))).To(Succeed())
		}
		run(ctx, "-n", ns, "create", "poddisruptionbudget", "web", "--selector=app="+ns, "--min-available=2")
		setReady(ctx, ns, "b", corev1.ConditionFalse)
		Eventually(budget(ctx, ns)).Should(Equal("1 of 2 healthy, needs 2, allows 0: False InsufficientPods"))
		evict := func(name string) error {
			return client.SubResource("eviction").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}, &policyv1.Eviction{})
		}
		Expect(evict("b")).To(MatchError(ContainSubstring("Cannot evict pod as it would violate the pod's disruption budget.")))
		run(ctx, "-n", ns, "patch", "pdb", "web", `--patch={"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`)
		Eventually(budget(ctx, ns)).Should(Equal("1 of 2 healthy, needs 2, allows 0: False InsufficientPods"))
		Expect(evict("b")).To(Succeed())
		Expect(evict("a")).To(MatchError(ContainSubstring("Cannot evict pod as it would violate the pod's disruption budget.")))
	})

	It("calculates the expected pods from the scale of their controllers", func(ctx SpecContext) {
		web := deploymentOn(ns, 4)
		Expect(client.Create(ctx, web)).To(Succeed())
		run(ctx, "-n", ns, "create", "poddisruptionbudget", "web", "--selector=app="+ns, "--max-unavailable=25%")
		Eventually(budget(ctx, ns)).Should(Equal("4 of 4 healthy, needs 3, allows 1: True SufficientPods"))

		killManager(ctx)
		run(ctx, "-n", ns, "scale", "deployment", "web", "--replicas=8")
		startManager(ctx)
		Eventually(budget(ctx, ns)).Should(Equal("8 of 8 healthy, needs 6, allows 2: True SufficientPods"))
		nodes.Kill(ns)
		run(ctx, "-n", ns, "scale", "deployment", "web", "--replicas=12")
		Eventually(budget(ctx, ns)).Should(Equal("8 of 12 healthy, needs 9, allows 0: False InsufficientPods"))
	})

	It("reads the scale of custom resources, and reports why it cannot", func(ctx SpecContext) {
		defineOwners(ctx)
		fleet := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "budget.example.com/v1", "kind": "Fleet",
			"metadata": map[string]any{"namespace": ns, "name": "fleet"}, "spec": map[string]any{"replicas": int64(4)},
		}}
		Expect(client.Create(ctx, fleet)).To(Succeed())
		Expect(client.Create(ctx, ownedPod(ns, "a", fleet, "budget.example.com/v1", "Fleet"))).To(Succeed())
		run(ctx, "-n", ns, "create", "poddisruptionbudget", "web", "--selector=app="+ns, "--max-unavailable=1")
		Eventually(budget(ctx, ns)).Should(Equal("1 of 4 healthy, needs 3, allows 0: False InsufficientPods"))

		By("refusing evictions when it does not know better")
		job := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "job"}, Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", Suspend: ptr.To(true)}}
		job.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "job", Image: "job"}}}
		Expect(client.Create(ctx, job)).To(Succeed())
		Expect(client.Create(ctx, ownedPod(ns, "b", job, "batch/v1", "CronJob"))).To(Succeed())
		Eventually(budget(ctx, ns)).Should(HaveSuffix("allows 0: False SyncFailed cronjobs.batch does not implement the scale subresource"))
		Eventually(func() string { return run(ctx, "-n", ns, "describe", "pdb", "web") }).Should(MatchRegexp(
			`Warning +CalculateExpectedPodCountFailed +.* +controllermanager +Failed to calculate the number of expected pods: cronjobs.batch does not implement the scale subresource`))

		dock := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "budget.example.com/v1", "kind": "Dock", "metadata": map[string]any{"namespace": ns, "name": "dock"},
		}}
		Expect(client.Create(ctx, dock)).To(Succeed())
		run(ctx, "-n", ns, "delete", "pod", "b")
		Expect(client.Create(ctx, ownedPod(ns, "c", dock, "budget.example.com/v1", "Dock"))).To(Succeed())
		Eventually(budget(ctx, ns)).Should(HaveSuffix("allows 0: False SyncFailed docks.budget.example.com does not implement the scale subresource"))

		By("writing its status while another client writes, too")
		run(ctx, "-n", ns, "delete", "pod", "a", "c")
		for i := range 5 {
			run(ctx, "-n", ns, "annotate", "pdb", "web", "--overwrite", fmt.Sprintf("n=%d", i))
			Expect(client.Create(ctx, boundPod(ns, fmt.Sprint("p", i), ns))).To(Succeed())
		}
		run(ctx, "-n", ns, "patch", "pdb", "web", `--patch={"spec":{"maxUnavailable":null,"minAvailable":2}}`)
		Eventually(budget(ctx, ns)).Should(Equal("5 of 5 healthy, needs 2, allows 3: True SufficientPods"))
	})
})

// budget returns the status of the budget "web".
func budget(ctx context.Context, namespace string) func() string {
	return func() string {
		b := &policyv1.PodDisruptionBudget{}
		if err := client.Get(ctx, ctrlclient.ObjectKey{Namespace: namespace, Name: "web"}, b); err != nil {
			return err.Error()
		}
		c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
		if c == nil || c.Reason != policyv1.SyncFailedReason && b.Status.ObservedGeneration != b.Generation {
			return "not yet"
		}
		s := fmt.Sprintf("%d of %d healthy, needs %d, allows %d: %s %s", b.Status.CurrentHealthy, b.Status.ExpectedPods,
			b.Status.DesiredHealthy, b.Status.DisruptionsAllowed, c.Status, c.Reason)
		if c.Message != "" {
			s += " " + c.Message
		}
		return s
	}
}

// deploymentOn is a deployment on the node that is named like its namespace.
func deploymentOn(namespace string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": namespace}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{NodeName: namespace, Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}
}

// defineOwners serves the custom kinds Fleet, which has a scale, and Dock, which has none.
func defineOwners(ctx context.Context) {
	GinkgoHelper()
	const fleets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.budget.example.com}
spec:
  group: budget.example.com
  scope: Namespaced
  names: {plural: fleets, singular: fleet, kind: Fleet}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {replicas: {type: integer}}}, status: {type: object, properties: {replicas: {type: integer}}}}}}
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
`
	const docks = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: docks.budget.example.com}
spec:
  group: budget.example.com
  scope: Namespaced
  names: {plural: docks, singular: dock, kind: Dock}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`
	define(ctx, "fleets.budget.example.com", fleets)
	define(ctx, "docks.budget.example.com", docks)
}

// ownedPod is a pod that another client has created for its owner.
func ownedPod(namespace, name string, owner ctrlclient.Object, version, kind string) *corev1.Pod {
	pod := boundPod(namespace, name, namespace)
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true)}}
	return pod
}
