package controllers

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var _ = Describe("cronjob", func() {
	It("starts a job at the time of its schedule, also after a crash, and keeps its history short", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		template := newJob(ns, jobNode(ctx), "", func(*batchv1.Job) {})
		killManager(ctx)
		create(ctx, &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "report"},
			Spec: batchv1.CronJobSpec{
				// A job's name has the minute of its start, so there is one a minute.
				Schedule: "@every 1s", ConcurrencyPolicy: batchv1.ForbidConcurrent, SuccessfulJobsHistoryLimit: ptr.To[int32](0),
				JobTemplate: batchv1.JobTemplateSpec{Spec: template.Spec},
			},
		})
		startManager(ctx)
		jobs := func() string {
			return run(ctx, "-n", ns, "get", "jobs", `-o=jsonpath={range .items[*]}{.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name} {end}`)
		}
		Eventually(jobs).WithContext(ctx).Should(Equal("CronJob/report "))
		Eventually(func() string { return run(ctx, "-n", ns, "get", "cronjob", "report", "--no-headers") }).WithContext(ctx).
			Should(MatchRegexp(`^report\s+@every 1s\s+<none>\s+False\s+1\s+\d+s`))
		run(ctx, "-n", ns, "patch", "cronjob", "report", "-p", `{"spec":{"suspend":true}}`)
		annotateWhenRunning(ctx, ns, 1, "0")
		Eventually(jobs).WithContext(ctx).Should(BeEmpty())
		Eventually(func() string { return run(ctx, "-n", ns, "describe", "cronjob", "report") }).WithContext(ctx).Should(And(
			MatchRegexp(`Normal\s+SuccessfulCreate\s+\S+\s+cronjob-controller\s+Created job report-\d+`),
			MatchRegexp(`Normal\s+SawCompletedJob\s+\S+\s+cronjob-controller\s+Saw completed job: report-\d+, condition: Complete`),
			MatchRegexp(`Normal\s+SuccessfulDelete\s+\S+\s+cronjob-controller\s+Deleted job report-\d+`),
		))
	})
})
