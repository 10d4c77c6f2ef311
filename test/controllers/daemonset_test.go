package controllers

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

var _ = Describe("daemonset", func() {
	var ns string
	var names []string
	BeforeEach(func(ctx SpecContext) {
		ns, _ = newWorkplace(ctx)
		names = nil
		for i := range 3 {
			names = append(names, fmt.Sprintf("%s-daemon-%d", ns, i))
			addNode(ctx, names[i], func(node *corev1.Node) { node.Labels = map[string]string{"spec": ns} })
		}
	})
	in := func(ctx context.Context, args ...string) string {
		GinkgoHelper()
		return run(ctx, append([]string{"-n", ns}, args...)...)
	}
	where := func(ctx context.Context) func() []string {
		return func() []string {
			var found []string
			for _, pod := range listPods(ctx, ns) {
				found = append(found, pod.Spec.NodeName)
			}
			return found
		}
	}

	It("runs one pod on each node that fits, also on a cordoned one", func(ctx SpecContext) {
		run(ctx, "cordon", names[0])
		create(ctx, daemonSet(ns, nil))
		in(ctx, "rollout", "status", "daemonset/log", "--timeout=5m")
		Eventually(where(ctx)).Should(ConsistOf(names))
		Eventually(func() string { return in(ctx, "describe", "daemonset", "log") }).Should(SatisfyAll(
			MatchRegexp(`Desired Number of Nodes Scheduled: 3`), MatchRegexp(`Number of Nodes Scheduled with Available Pods: 3`),
			MatchRegexp(`Normal +SuccessfulCreate +\S+ +daemonset-controller +Created pod: log-\w{5}`),
		))
		run(ctx, "taint", "node", names[1], "own:NoExecute")
		run(ctx, "label", "node", names[2], "spec-")
		Eventually(where(ctx)).Should(ConsistOf(names[0]))
		run(ctx, "taint", "node", names[1], "own-")
		Eventually(where(ctx)).Should(ConsistOf(names[0], names[1]))
	})

	It("rolls out, keeps the history, rolls back and restarts", func(ctx SpecContext) {
		create(ctx, daemonSet(ns, nil))
		in(ctx, "rollout", "status", "daemonset/log", "--timeout=5m")
		in(ctx, "set", "image", "daemonset/log", "web=web:2")
		Eventually(imagesOf(ctx, ns)).Should(HaveKey("web:2"))
		killManager(ctx)
		startManager(ctx)
		in(ctx, "rollout", "status", "daemonset/log", "--timeout=5m")
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:2": 3}))
		Expect(in(ctx, "rollout", "history", "daemonset/log")).To(MatchRegexp(`1 +<none>\n2 +<none>`))

		in(ctx, "rollout", "undo", "daemonset/log")
		in(ctx, "rollout", "status", "daemonset/log", "--timeout=5m")
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:1": 3}))
		Expect(in(ctx, "rollout", "history", "daemonset/log")).To(MatchRegexp(`2 +<none>\n3 +<none>`))

		before := podUIDs(ctx, ns)
		in(ctx, "rollout", "restart", "daemonset/log")
		in(ctx, "rollout", "status", "daemonset/log", "--timeout=5m")
		Eventually(func() bool { return podUIDs(ctx, ns).HasAny(before.UnsortedList()...) }).Should(BeFalse())
		in(ctx, "patch", "daemonset", "log", `--patch={"spec":{"revisionHistoryLimit":0}}`)
		Eventually(func() string { return in(ctx, "get", "controllerrevisions", "--no-headers") }).Should(HaveLines(1))
	})

	It("surges, so that each node has an available pod all the time", func(ctx SpecContext) {
		create(ctx, daemonSet(ns, func(ds *appsv1.DaemonSet) {
			ds.Spec.MinReadySeconds = 2
			ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{
				MaxSurge: ptr.To(intstr.FromInt32(2)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
			}}
		}))
		in(ctx, "rollout", "status", "daemonset/log", "--timeout=5m")
		pods := follow(ctx, ns)
		in(ctx, "set", "image", "daemonset/log", "web=web:2")
		Eventually(imagesOf(ctx, ns)).Should(HaveKey("web:2"))
		killManager(ctx)
		startManager(ctx)
		in(ctx, "rollout", "status", "daemonset/log", "--timeout=5m")
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:2": 3}))
		Expect(pods.fewestReady(3)).To(BeNumerically(">=", 3))
	})
})

// daemonSet is the daemon set "log", whose pods run on the nodes with the label
// spec=namespace.
func daemonSet(namespace string, change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	pod := replicaPod(namespace, "", "")
	pod.Spec.NodeSelector = map[string]string{"spec": namespace}
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "log"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}
	if change != nil {
		change(ds)
	}
	return ds
}
