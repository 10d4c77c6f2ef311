package controllers

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/simulate"
)

var _ = Describe("job", func() {
	var ns, node string
	BeforeEach(func(ctx SpecContext) {
		ns = newNamespace(ctx)
		node = jobNode(ctx)
	})

	It("runs a pod to its end", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "0", func(*batchv1.Job) {}))
		run(ctx, "-n", ns, "wait", "--for=condition=complete", "job/work", "--timeout=10s")
		Expect(run(ctx, "-n", ns, "get", "job", "work", "--no-headers")).To(MatchRegexp(`^work\s+Complete\s+1/1`))
		Expect(podFinalizers(ctx, ns)).To(BeEmpty())
		Eventually(func() string { return run(ctx, "-n", ns, "describe", "job", "work") }).WithContext(ctx).Should(And(
			MatchRegexp(`Pods Statuses:\s+0 Active \(0 Ready\) / 1 Succeeded / 0 Failed`),
			MatchRegexp(`Normal\s+SuccessfulCreate\s+\S+\s+job-controller\s+Created pod: work-\w{5}`),
			MatchRegexp(`Normal\s+Completed\s+\S+\s+job-controller\s+Job completed`),
		))
	})

	It("counts 20 completions exactly, though the manager is killed", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "0", func(j *batchv1.Job) {
			j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](20), ptr.To[int32](4)
		}))
		for i := range 2 {
			Eventually(func() int32 { return getJob(ctx, ns).Status.Succeeded }).WithContext(ctx).
				WithPolling(time.Millisecond).Should(BeNumerically(">", 4*i))
			manager.Kill()
			startManager(ctx)
		}
		run(ctx, "-n", ns, "wait", "--for=condition=complete", "job/work", "--timeout=20s")
		status := getJob(ctx, ns).Status
		Expect(status.Succeeded).To(Equal(int32(20)))
		Expect(status.Failed).To(BeZero())
		Expect(podPhases(ctx, ns)).To(Equal(map[corev1.PodPhase]int{corev1.PodSucceeded: 20}))
		Expect(podFinalizers(ctx, ns)).To(BeEmpty())
	})
})

// jobNode is a simulated node that the pods of one spec are bound to.
func jobNode(ctx context.Context) string {
	GinkgoHelper()
	name := fmt.Sprintf("job-%d", time.Now().UnixNano())
	Expect(nodes.Add(ctx, name, nil)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))).To(Succeed())
	})
	return name
}

// newJob is the job "work", whose pods run on node and end with an exit code,
// unless that is empty.
func newJob(namespace, node, exit string, change func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "work"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{
				NodeName: node, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](0),
				Containers: []corev1.Container{{Name: "main", Image: "work"}},
			},
		}},
	}
	if exit != "" {
		job.Spec.Template.Annotations = map[string]string{simulate.ExitAnnotation: exit}
	}
	change(job)
	return job
}

func create(ctx context.Context, obj ctrlclient.Object) {
	GinkgoHelper()
	Expect(client.Create(ctx, obj)).To(Succeed())
}

func getJob(ctx context.Context, namespace string) *batchv1.Job {
	GinkgoHelper()
	job := &batchv1.Job{}
	Expect(client.Get(ctx, ctrlclient.ObjectKey{Namespace: namespace, Name: "work"}, job)).To(Succeed())
	return job
}

func listPods(ctx context.Context, namespace string) []corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Expect(client.List(ctx, &list, ctrlclient.InNamespace(namespace))).To(Succeed())
	return list.Items
}

// podFinalizers are the finalizers of all pods of a namespace.
func podFinalizers(ctx context.Context, namespace string) []string {
	GinkgoHelper()
	var all []string
	for _, pod := range listPods(ctx, namespace) {
		for _, f := range pod.Finalizers {
			all = append(all, pod.Name+": "+f)
		}
	}
	return all
}

func podPhases(ctx context.Context, namespace string) map[corev1.PodPhase]int {
	GinkgoHelper()
	phases := map[corev1.PodPhase]int{}
	for _, pod := range listPods(ctx, namespace) {
		phases[pod.Status.Phase]++
	}
	return phases
}

// jobConditions are the job's true conditions, with their reasons and messages.
func jobConditions(job *batchv1.Job) string {
	var all []string
	for _, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			all = append(all, fmt.Sprintf("%s: %s: %s", c.Type, c.Reason, c.Message))
		}
	}
	return strings.Join(all, "\n")
}
