package spec

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/simulate"
)

// The names, labels and buckets of these metrics are those of Kubernetes 1.28:
// dashboards and alerts that exist work with them.
var _ = Describe("metrics of a whole system", Ordered, func() {
	var whole *launch.Server

	// serves waits until each series is in /metrics, in lines that begin so.
	serves := func(ctx context.Context, series ...string) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			resp, err := launch.Send(ctx, whole.Config, launch.Request{Method: "GET", Path: "/metrics"})
			g.Expect(err).NotTo(HaveOccurred())
			for _, s := range series {
				g.Expect(resp.Body).To(ContainSubstring("\n"+s), s)
			}
		}).Should(Succeed())
	}
	post := func(ctx context.Context, path, body string) {
		GinkgoHelper()
		resp, err := launch.Send(ctx, whole.Config, launch.Request{Method: "POST", Path: path, ContentType: "application/yaml", Body: body})
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.Status).To(Equal(201), resp.Body)
	}

	BeforeAll(func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		whole, err = launch.Up(ctx, filepath.Join(dir, "data"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(whole.Kill)
	})

	It("the scheduler counts the pods that it has no node for", func(ctx SpecContext) {
		post(ctx, "/api/v1/namespaces/default/pods", `{apiVersion: v1, kind: Pod, metadata: {name: waits}, spec: {containers: [{name: a, image: a}]}}`)
		serves(ctx, `scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"}`,
			`scheduler_scheduling_attempt_duration_seconds_count{profile="default-scheduler",result="unschedulable"}`,
			`scheduler_pending_pods{queue="unschedulable"} 1`, `scheduler_pending_pods{queue="active"} 0`,
			`scheduler_queue_incoming_pods_total{event="PodAdd",queue="active"}`, `scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"}`)
	})

	It("the scheduler counts the pods that get a node", func(ctx SpecContext) {
		nodes, err := simulate.Start(whole.Config)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(nodes.Stop)
		Expect(nodes.Add(ctx, "n", nil)).To(Succeed())
		serves(ctx, `scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"}`,
			`scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.001"}`, `scheduler_pod_scheduling_attempts_bucket{le="1"}`,
			`scheduler_pod_scheduling_duration_seconds_count{attempts="`, `scheduler_pod_scheduling_sli_duration_seconds_count{attempts="`,
			`scheduler_queue_incoming_pods_total{event="Node`, `scheduler_scheduler_cache_size{type="nodes"} 1`, `scheduler_goroutines{operation="binding"} 0`)
	})
})
