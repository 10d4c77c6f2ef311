package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	waitFor := func(ctx SpecContext, condition string) {
		GinkgoHelper()
		run(ctx, "-n", ns, "wait", "--for=condition="+condition, "job/work", "--timeout=5m")
	}

	It("runs a pod to completion", func(ctx SpecContext) {
		run(ctx, "-n", ns, "create", "job", "work", "--image=work", "--", "true")
		annotateWhenRunning(ctx, ns, 1, "0")
		waitFor(ctx, "complete")
		Expect(run(ctx, "-n", ns, "get", "job", "work", "--no-headers")).To(MatchRegexp(`^work\s+Complete\s+1/1`))
		Expect(podFinalizers(ctx, ns)).To(BeEmpty())
		Eventually(func() string { return run(ctx, "-n", ns, "describe", "job", "work") }).WithContext(ctx).Should(And(
			MatchRegexp(`Pods Statuses:\s+0 Active \(0 Ready\) / 1 Succeeded / 0 Failed`),
			MatchRegexp(`Normal\s+SuccessfulCreate\s+\S+\s+job-controller\s+Created pod: work-\w{5}`),
			MatchRegexp(`Normal\s+Completed\s+\S+\s+job-controller\s+Job completed`),
		))
	})

	It("counts 20 completions exactly when the manager is killed", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "0", func(j *batchv1.Job) {
			j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](20), ptr.To[int32](4)
		}))
		Eventually(func() int32 { return getJob(ctx, ns).Status.Succeeded }).WithContext(ctx).
			WithPolling(time.Millisecond).Should(BeNumerically(">=", 4))
		killManager(ctx)
		startManager(ctx)
		waitFor(ctx, "complete")
		expectExactly(ctx, ns, 20)
	})

	It("counts exactly while other clients write the job and its pods", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "0", func(j *batchv1.Job) {
			j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](20), ptr.To[int32](5)
		}))
		for written := 0; trueJobCondition(getJob(ctx, ns), batchv1.JobComplete) == nil; written++ {
			for range 5 {
				Expect(client.Patch(ctx, getJob(ctx, ns), mergePatch(`{"metadata":{"annotations":{"n":"%d"}}}`, written))).To(Succeed())
			}
			for _, pod := range listPods(ctx, ns) {
				if pod.Labels["n"] == "" {
					Expect(ctrlclient.IgnoreNotFound(client.Patch(ctx, &pod, mergePatch(`{"metadata":{"labels":{"n":"%d"}}}`, written)))).To(Succeed())
				}
			}
		}
		expectExactly(ctx, ns, 20)
	})

	It("gives each pod of an indexed job its index, and fails when an index fails", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "", func(j *batchv1.Job) {
			j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](3), ptr.To[int32](3)
			j.Spec.CompletionMode, j.Spec.BackoffLimitPerIndex = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](0)
		}))
		for i := range 3 {
			selector := fmt.Sprintf("--selector=batch.kubernetes.io/job-completion-index=%d", i)
			Eventually(func() string {
				return run(ctx, "-n", ns, "get", "pods", selector, `-o=jsonpath={range .items[*]}{.metadata.generateName} {.spec.hostname} {.spec.containers[0].env[0].name}={.spec.containers[0].env[0].valueFrom.fieldRef.fieldPath}{end}`)
			}).WithContext(ctx).Should(Equal(fmt.Sprintf("work-%d- work-%d JOB_COMPLETION_INDEX=metadata.labels['batch.kubernetes.io/job-completion-index']", i, i)))
			run(ctx, "-n", ns, "annotate", "pods", selector, fmt.Sprintf("%s=%d", simulate.ExitAnnotation, i%2))
		}
		waitFor(ctx, "failed")
		job := getJob(ctx, ns)
		Expect(job.Status.CompletedIndexes).To(Equal("0,2"))
		Expect(job.Status.FailedIndexes).To(HaveValue(Equal("1")))
		Expect(jobConditions(job)).To(Equal("FailureTarget: FailedIndexes: Job has failed indexes\nFailed: FailedIndexes: Job has failed indexes"))
		Expect(run(ctx, "-n", ns, "describe", "job", "work")).To(MatchRegexp(`Completed Indexes:\s+0,2`))
	})

	It("completes when enough indexes succeed, by its success policy", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "", func(j *batchv1.Job) {
			j.Spec.Completions, j.Spec.Parallelism, j.Spec.CompletionMode = ptr.To[int32](3), ptr.To[int32](3), ptr.To(batchv1.IndexedCompletion)
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("1")}}}
		}))
		Eventually(func() int32 { return getJob(ctx, ns).Status.Active }).WithContext(ctx).Should(Equal(int32(3)))
		run(ctx, "-n", ns, "annotate", "pods", "--selector=batch.kubernetes.io/job-completion-index=1", simulate.ExitAnnotation+"=0")
		waitFor(ctx, "complete")
		job := getJob(ctx, ns)
		Expect(jobConditions(job)).To(Equal("SuccessCriteriaMet: SuccessPolicy: Matched rules at index 0\nComplete: SuccessPolicy: Matched rules at index 0"))
		Expect(job.Status.Failed).To(BeZero())
		Expect(podPhases(ctx, ns)).To(Equal(map[corev1.PodPhase]int{corev1.PodSucceeded: 1}))
	})

	It("fails beyond its backoff limit, and waits between failures", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "1", func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](1) }))
		Eventually(func() int32 { return getJob(ctx, ns).Status.Failed }).WithContext(ctx).Should(Equal(int32(1)))
		Consistently(func(g Gomega) {
			pods := listPods(ctx, ns)
			if len(pods) == 1 {
				return
			}
			// The machine was so slow that the backoff of ten seconds has passed.
			slices.SortFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
			g.Expect(pods).To(HaveLen(2))
			g.Expect(pods[1].CreationTimestamp.Sub(pods[0].CreationTimestamp.Time)).To(BeNumerically(">=", 10*time.Second))
		}).WithContext(ctx).Should(Succeed())
		run(ctx, "-n", ns, "delete", "job", "work")

		create(ctx, newJob(ns, node, "1", func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](0) }))
		waitFor(ctx, "failed")
		Eventually(func() string { return run(ctx, "-n", ns, "describe", "job", "work") }).WithContext(ctx).Should(
			MatchRegexp(`Warning\s+BackoffLimitExceeded\s+\S+\s+job-controller\s+Job has reached the specified backoff limit`))
	})

	It("stops a job at its deadline", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "", func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](2) }))
		waitFor(ctx, "failed")
		job := getJob(ctx, ns)
		Expect(jobConditions(job)).To(HaveSuffix("Failed: DeadlineExceeded: Job was active longer than specified deadline"))
		Expect(job.Status.Conditions[0].LastTransitionTime.Sub(job.Status.StartTime.Time)).To(BeNumerically(">=", 2*time.Second))
		Expect(listPods(ctx, ns)).To(BeEmpty())
	})

	It("suspends and resumes", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "", func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](2) }))
		Eventually(func() int32 { return ptr.Deref(getJob(ctx, ns).Status.Ready, 0) }).WithContext(ctx).Should(Equal(int32(2)))
		run(ctx, "-n", ns, "patch", "job", "work", `--patch={"spec":{"suspend":true}}`)
		waitFor(ctx, "suspended")
		Expect(getJob(ctx, ns).Status.StartTime).To(BeNil())
		Eventually(func() []corev1.Pod { return listPods(ctx, ns) }).WithContext(ctx).Should(BeEmpty())

		run(ctx, "-n", ns, "patch", "job", "work", `--patch={"spec":{"suspend":false,"template":{"metadata":{"annotations":{"`+simulate.ExitAnnotation+`":"0"}}}}}`)
		waitFor(ctx, "complete")
		Expect(getJob(ctx, ns).Status.Failed).To(BeZero())
		Eventually(func() string { return run(ctx, "-n", ns, "get", "events", "-o=jsonpath={.items[*].reason}") }).WithContext(ctx).
			Should(And(ContainSubstring("Suspended"), ContainSubstring("Resumed")))
	})

	It("fails at once when the pod failure policy says so", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "42", func(j *batchv1.Job) {
			j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:      batchv1.PodFailurePolicyActionFailJob,
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42}},
			}}}
		}))
		waitFor(ctx, "failed")
		Expect(jobConditions(getJob(ctx, ns))).To(MatchRegexp(`Failed: PodFailurePolicy: Container main for pod ` + ns + `/work-\w{5} failed with exit code 42 matching FailJob rule at index 0$`))
	})

	It("replaces a deleted pod when it has terminated", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "", func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }))
		Eventually(func() int32 { return ptr.Deref(getJob(ctx, ns).Status.Ready, 0) }).WithContext(ctx).Should(Equal(int32(1)))
		run(ctx, "-n", ns, "delete", "pods", "--all")
		Eventually(func() int32 { return getJob(ctx, ns).Status.Failed }).WithContext(ctx).Should(Equal(int32(1)))
		Expect(listPods(ctx, ns)).To(BeEmpty())
	})

	It("ignores a job with another managedBy", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "0", func(j *batchv1.Job) { j.Spec.ManagedBy = ptr.To("example.com/other") }))
		Consistently(func() []corev1.Pod { return listPods(ctx, ns) }).WithContext(ctx).Should(BeEmpty())
	})

	It("removes the finalizer from pods of a deleted job", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "", func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](3) }))
		Eventually(func() []string { return podFinalizers(ctx, ns) }).WithContext(ctx).Should(HaveLen(3))
		run(ctx, "-n", ns, "delete", "job", "work", "--wait=false")
		Eventually(func() []string { return podFinalizers(ctx, ns) }).WithContext(ctx).Should(BeEmpty())
	})

	It("adopts pods, and releases those that its selector no longer matches", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "", func(*batchv1.Job) {}))
		Eventually(func() []string { return podFinalizers(ctx, ns) }).WithContext(ctx).Should(HaveLen(1))
		pod := listPods(ctx, ns)[0]
		run(ctx, "-n", ns, "label", "pod", pod.Name, "batch.kubernetes.io/controller-uid-", "controller-uid-")
		Eventually(func() []string { return podFinalizers(ctx, ns) }).WithContext(ctx).Should(And(HaveLen(1), Not(ContainElement(HavePrefix(pod.Name)))))
		uid := string(getJob(ctx, ns).UID)
		run(ctx, "-n", ns, "label", "pod", pod.Name, "batch.kubernetes.io/controller-uid="+uid)
		Eventually(func() []corev1.Pod { return listPods(ctx, ns) }).WithContext(ctx).Should(HaveLen(1), "one pod is too much then")
	})

	It("is deleted when its time to live has passed", func(ctx SpecContext) {
		create(ctx, newJob(ns, node, "0", func(j *batchv1.Job) {
			j.Spec.TTLSecondsAfterFinished, j.Finalizers = ptr.To[int32](1), []string{hold}
		}))
		Eventually(func() *metav1.Time { return getJob(ctx, ns).DeletionTimestamp }).WithContext(ctx).ShouldNot(BeNil())
		job := getJob(ctx, ns)
		Expect(trueJobCondition(job, batchv1.JobComplete)).NotTo(BeNil())
		Expect(job.DeletionTimestamp.Sub(job.Status.CompletionTime.Time)).To(BeNumerically(">=", time.Second))
		released(ctx, job)
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

// annotateWhenRunning lets the pods of a namespace end with an exit code when n of
// them run.
func annotateWhenRunning(ctx context.Context, namespace string, n int, exit string) {
	GinkgoHelper()
	Eventually(func() int { return podPhases(ctx, namespace)[corev1.PodRunning] }).WithContext(ctx).Should(Equal(n))
	run(ctx, "-n", namespace, "annotate", "pods", "--all", simulate.ExitAnnotation+"="+exit)
}

// expectExactly checks that a complete job has counted each of its pods once.
func expectExactly(ctx context.Context, namespace string, n int) {
	GinkgoHelper()
	status := getJob(ctx, namespace).Status
	Expect(status.Succeeded).To(Equal(int32(n)))
	Expect(status.Failed).To(BeZero())
	Expect(podPhases(ctx, namespace)).To(Equal(map[corev1.PodPhase]int{corev1.PodSucceeded: n}))
	Expect(podFinalizers(ctx, namespace)).To(BeEmpty())
}

func mergePatch(format string, args ...any) ctrlclient.Patch {
	return ctrlclient.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
}

func trueJobCondition(job *batchv1.Job, name batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		if c := &job.Status.Conditions[i]; c.Type == name && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
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
