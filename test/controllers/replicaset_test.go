package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("replicaset", func() {
	var ns, node string
	BeforeEach(func(ctx SpecContext) { ns, node = newWorkplace(ctx) })
	in := func(ctx context.Context, args ...string) string {
		GinkgoHelper()
		return run(ctx, append([]string{"-n", ns}, args...)...)
	}

	It("keeps spec.replicas pods", func(ctx SpecContext) {
		create(ctx, replicaSet(ns, node, 3, nil))
		Eventually(statusOf(ctx, ns)).Should(Equal("3 replicas, 3 labeled, 3 ready, 3 available, 0 terminating, generation 1"))
		victim := listPods(ctx, ns)[0].Name
		in(ctx, "delete", "pod", victim, "--wait=false")
		Eventually(func() []string { return namesOf(ctx, ns) }).Should(And(HaveLen(3), Not(ContainElement(victim))))
		in(ctx, "scale", "replicaset", "web", "--replicas=1")
		Eventually(statusOf(ctx, ns)).Should(Equal("1 replicas, 1 labeled, 1 ready, 1 available, 0 terminating, generation 2"))
		Eventually(func() string { return in(ctx, "describe", "replicaset", "web") }).Should(SatisfyAll(
			MatchRegexp(`Replicas: +1 current / 1 desired`),
			MatchRegexp(`Pods Status: +1 Running / 0 Waiting / 0 Succeeded / 0 Failed`),
			MatchRegexp(`Normal +SuccessfulCreate +\S+ +replicaset-controller +Created pod: web-\w{5}`),
			MatchRegexp(`Normal +SuccessfulDelete +\S+ +replicaset-controller +Deleted pod: web-\w{5}`),
		))
	})

	It("adopts pods that match, and releases pods that no longer match", func(ctx SpecContext) {
		orphan := replicaPod(ns, node, "orphan")
		create(ctx, orphan)
		create(ctx, replicaSet(ns, node, 2, nil))
		Eventually(controllerOf(ctx, ns, "orphan")).Should(Equal("ReplicaSet web true true"))
		Eventually(func() []string { return namesOf(ctx, ns) }).Should(HaveLen(2))

		in(ctx, "label", "pod", "orphan", "app=debug", "--overwrite")
		Eventually(controllerOf(ctx, ns, "orphan")).Should(Equal("none"))
		Eventually(func() []string { return namesOf(ctx, ns) }).Should(HaveLen(3))
		in(ctx, "label", "pod", "orphan", "app=web", "--overwrite")
		Eventually(func() []string { return namesOf(ctx, ns) }).Should(HaveLen(2))
	})

	It("adopts no pods when it is being deleted", func(ctx SpecContext) {
		create(ctx, replicaSet(ns, node, 1, func(rs *appsv1.ReplicaSet) { rs.Finalizers = []string{"example.com/hold"} }))
		Eventually(func() []string { return namesOf(ctx, ns) }).Should(HaveLen(1))
		in(ctx, "delete", "replicaset", "web", "--wait=false", "--cascade=orphan")
		create(ctx, replicaPod(ns, node, "orphan"))
		Consistently(controllerOf(ctx, ns, "orphan")).Should(Equal("none"))
		in(ctx, "patch", "replicaset", "web", "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
	})

	It("deletes the pod with the lowest deletion cost first", func(ctx SpecContext) {
		create(ctx, replicaSet(ns, node, 3, nil))
		Eventually(statusOf(ctx, ns)).Should(ContainSubstring("3 available"))
		names := namesOf(ctx, ns)
		in(ctx, "annotate", "pod", names[1], "controller.kubernetes.io/pod-deletion-cost=-5")
		in(ctx, "annotate", "pod", names[2], "controller.kubernetes.io/pod-deletion-cost=100")
		in(ctx, "scale", "replicaset", "web", "--replicas=2")
		Eventually(func() []string { return namesOf(ctx, ns) }).Should(ConsistOf(names[0], names[2]))
		in(ctx, "scale", "replicaset", "web", "--replicas=1")
		Eventually(func() []string { return namesOf(ctx, ns) }).Should(ConsistOf(names[2]))
	})

	It("counts a pod as available once it has been ready for minReadySeconds, without a further event", func(ctx SpecContext) {
		create(ctx, replicaSet(ns, node, 1, func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 2 }))
		Eventually(statusOf(ctx, ns)).WithPolling(5 * time.Millisecond).Should(HavePrefix("1 replicas, 1 labeled, 1 ready, 1 available"))
		// The condition Ready has a time in whole seconds.
		for _, c := range listPods(ctx, ns)[0].Status.Conditions {
			if c.Type == corev1.PodReady {
				Expect(time.Now()).To(BeTemporally(">=", c.LastTransitionTime.Add(2*time.Second)))
			}
		}
	})

	It("reports why it cannot create pods, and creates them when it can", func(ctx SpecContext) {
		create(ctx, replicaSet(ns, node, 5, func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Finalizers = []string{"no finalizer"} }))
		Eventually(func() string { return in(ctx, "describe", "replicaset", "web") }).Should(SatisfyAll(
			MatchRegexp(`Replicas: +0 current / 5 desired`),
			MatchRegexp(`ReplicaFailure +True +FailedCreate`),
			MatchRegexp(`Warning +FailedCreate +.* +replicaset-controller +Error creating: Pod "web-\w{5}" is invalid: \[metadata.finalizers: `),
		))
		in(ctx, "patch", "replicaset", "web", "--type=merge", `--patch={"spec":{"template":{"metadata":{"finalizers":null}}}}`)
		Eventually(statusOf(ctx, ns)).Should(HavePrefix("5 replicas, 5 labeled, 5 ready, 5 available"))
		Expect(in(ctx, "get", "replicaset", "web", "-o", "jsonpath={.status.conditions}")).To(BeEmpty())
	})

	It("scales replication controllers, too", func(ctx SpecContext) {
		rc := &corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
			Spec:       corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](2), Template: &replicaSet(ns, node, 0, nil).Spec.Template},
		}
		create(ctx, rc)
		Eventually(func() string { return in(ctx, "get", "rc", "web", "--no-headers") }).Should(MatchRegexp(`^web +2 +2 +2 `))
		Expect(controllerOf(ctx, ns, namesOf(ctx, ns)[0])()).To(Equal("ReplicationController web true true"))
		in(ctx, "scale", "rc", "web", "--replicas=1")
		Eventually(func() string { return in(ctx, "describe", "rc", "web") }).Should(
			MatchRegexp(`Normal +SuccessfulDelete +\S+ +replication-controller +Deleted pod: web-\w{5}`))
	})

	It("counts its pods while another client writes it all the time", func(ctx SpecContext) {
		rs := replicaSet(ns, node, 2, nil)
		create(ctx, rs)
		stop := disturb(ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}})
		in(ctx, "scale", "replicaset", "web", "--replicas=6")
		Eventually(statusOf(ctx, ns)).Should(HavePrefix("6 replicas, 6 labeled, 6 ready, 6 available"))
		stop()
	})
})

// newWorkplace creates a namespace and a node for its pods, which go with them.
func newWorkplace(ctx context.Context) (namespace, node string) {
	GinkgoHelper()
	node = fmt.Sprintf("workplace-%d", time.Now().UnixNano())
	addNode(ctx, node, nil)
	DeferCleanup(func(ctx SpecContext) {
		// The namespace goes already; its pods need not take their time.
		Expect(client.DeleteAllOf(ctx, &corev1.Pod{}, ctrlclient.InNamespace(namespace), ctrlclient.GracePeriodSeconds(0))).To(Succeed())
	})
	namespace = newNamespace(ctx)
	return namespace, node
}

// replicaSet is the replica set "web", whose pods run on node.
func replicaSet(namespace, node string, replicas int32, change func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	pod := replicaPod(namespace, node, "")
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}
	if change != nil {
		change(rs)
	}
	return rs
}

// replicaPod is a pod that the replica set "web" would adopt.
func replicaPod(namespace, node, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
}

// statusOf is the status of the replica set "web".
func statusOf(ctx context.Context, namespace string) func() string {
	return func() string {
		var rs appsv1.ReplicaSet
		if err := client.Get(ctx, ctrlclient.ObjectKey{Namespace: namespace, Name: "web"}, &rs); err != nil {
			return err.Error()
		}
		s := rs.Status
		return fmt.Sprintf("%d replicas, %d labeled, %d ready, %d available, %d terminating, generation %d",
			s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas, ptr.Deref(s.TerminatingReplicas, -1), s.ObservedGeneration)
	}
}

// namesOf are the names of the pods that are not being deleted.
func namesOf(ctx context.Context, namespace string) []string {
	var names []string
	for _, pod := range listPods(ctx, namespace) {
		if pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	return names
}

// controllerOf returns the controller of a pod: kind, name, and whether the
// reference says that it is one and blocks its deletion.
func controllerOf(ctx context.Context, namespace, pod string) func() string {
	return func() string {
		out := run(ctx, "-n", namespace, "get", "pod", pod, "-o", "json")
		var p corev1.Pod
		if err := json.Unmarshal([]byte(out), &p); err != nil {
			return err.Error()
		}
		ref := metav1.GetControllerOf(&p)
		if ref == nil {
			return "none"
		}
		return fmt.Sprint(ref.Kind, " ", ref.Name, " ", *ref.Controller, " ", ptr.Deref(ref.BlockOwnerDeletion, false))
	}
}
