package controllers

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("statefulset", func() {
	var ns, node string
	BeforeEach(func(ctx SpecContext) { ns, node = newWorkplace(ctx) })
	in := func(ctx context.Context, args ...string) string {
		GinkgoHelper()
		return run(ctx, append([]string{"-n", ns}, args...)...)
	}
	jsonpath := func(ctx context.Context, object, path string) func() string {
		return func() string { return in(ctx, "get", object, "-o", "jsonpath="+path) }
	}

	It("creates its pods in order, with their names, claims and labels", func(ctx SpecContext) {
		create(ctx, statefulSet(ns, node, 2, func(set *appsv1.StatefulSet) {
			set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			}}}
			set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
			}
		}))
		in(ctx, "rollout", "status", "statefulset/db", "--timeout=5m")
		pods := listPods(ctx, ns)
		Expect(namesOf(ctx, ns)).To(Equal([]string{"db-0", "db-1"}))
		Expect(pods[1].Labels).To(SatisfyAll(
			HaveKeyWithValue("statefulset.kubernetes.io/pod-name", "db-1"), HaveKeyWithValue("apps.kubernetes.io/pod-index", "1"), HaveKey("controller-revision-hash"),
		))
		Expect(pods[1].Spec.Hostname + "." + pods[1].Spec.Subdomain).To(Equal("db-1.peers"))
		Expect(in(ctx, "get", "pvc", "-o", "name")).To(Equal("persistentvolumeclaim/data-db-0\npersistentvolumeclaim/data-db-1\n"))
		Eventually(func() string { return in(ctx, "describe", "statefulset", "db") }).Should(SatisfyAll(
			MatchRegexp(`Normal +SuccessfulCreate +\S+ +statefulset-controller +create Claim data-db-0 Pod db-0 in StatefulSet db success`),
			MatchRegexp(`Normal +SuccessfulCreate +\S+ +statefulset-controller +create Pod db-0 in StatefulSet db successful`),
		))
		in(ctx, "scale", "statefulset", "db", "--replicas=1")
		Eventually(func() string { return in(ctx, "get", "pvc", "-o", "name") }).Should(Equal("persistentvolumeclaim/data-db-0\n"))
		in(ctx, "scale", "statefulset", "db", "--replicas=2")
		in(ctx, "rollout", "status", "statefulset/db", "--timeout=5m")
		Expect(in(ctx, "get", "pvc", "-o", "name")).To(HaveSuffix("data-db-1\n"))
	})

	It("rolls out, keeps the history, rolls back and restarts", func(ctx SpecContext) {
		create(ctx, statefulSet(ns, node, 2, func(set *appsv1.StatefulSet) { set.Spec.RevisionHistoryLimit = new(int32) }))
		in(ctx, "rollout", "status", "statefulset/db", "--timeout=5m")
		in(ctx, "set", "image", "statefulset/db", "web=web:2")
		in(ctx, "rollout", "status", "statefulset/db", "--timeout=5m")
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:2": 2}))
		Eventually(func() string { return in(ctx, "get", "controllerrevisions", "--no-headers") }).Should(HaveLines(1))

		in(ctx, "patch", "statefulset", "db", `--patch={"spec":{"revisionHistoryLimit":5}}`)
		in(ctx, "set", "image", "statefulset/db", "web=web:3")
		in(ctx, "rollout", "status", "statefulset/db", "--timeout=5m")
		Expect(strings.Fields(in(ctx, "rollout", "history", "statefulset/db"))).To(ContainElements("2", "3"))
		in(ctx, "rollout", "undo", "statefulset/db")
		in(ctx, "rollout", "status", "statefulset/db", "--timeout=5m")
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:2": 2}))
		Expect(strings.Fields(in(ctx, "rollout", "history", "statefulset/db"))).To(ContainElements("3", "4"))

		before := podUIDs(ctx, ns)
		in(ctx, "rollout", "restart", "statefulset/db")
		in(ctx, "rollout", "status", "statefulset/db", "--timeout=5m")
		Expect(podUIDs(ctx, ns).Intersection(before)).To(BeEmpty())
	})

	It("goes on after the manager is killed in a rollout", func(ctx SpecContext) {
		create(ctx, statefulSet(ns, node, 3, nil))
		in(ctx, "rollout", "status", "statefulset/db", "--timeout=5m")
		in(ctx, "set", "image", "statefulset/db", "web=web:2")
		Eventually(imagesOf(ctx, ns)).Should(HaveKey("web:2"))
		killManager(ctx)
		startManager(ctx)
		in(ctx, "rollout", "status", "statefulset/db", "--timeout=5m")
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:2": 3}))
		Expect(in(ctx, "get", "controllerrevisions", "--no-headers")).To(HaveLines(2))
	})

	It("adopts the pods that an orphaning deletion has left, and makes progress while another client keeps writing", func(ctx SpecContext) {
		create(ctx, statefulSet(ns, node, 2, nil))
		in(ctx, "rollout", "status", "statefulset/db", "--timeout=5m")
		before := podUIDs(ctx, ns)
		in(ctx, "delete", "statefulset", "db", "--cascade=orphan", "--timeout=5m")
		create(ctx, statefulSet(ns, node, 3, nil))
		stop := disturb(ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"}})
		Eventually(jsonpath(ctx, "statefulset/db", "{.status.readyReplicas}")).Should(Equal("3"))
		stop()
		Expect(podUIDs(ctx, ns).IsSuperset(before)).To(BeTrue())
		Expect(in(ctx, "get", "controllerrevisions", "--no-headers")).To(HaveLines(1))
	})
})

// statefulSet is the stateful set "db", whose pods run on node.
func statefulSet(namespace, node string, replicas int32, change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	pod := replicaPod(namespace, node, "")
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "peers",
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}
	if change != nil {
		change(set)
	}
	return set
}
