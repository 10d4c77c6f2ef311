package spec

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/mixin"
	"svc.dev/svc/test/simulate"
)

// The names, labels and buckets of these metrics are those of Kubernetes 1.28:
// dashboards and alerts that exist work with them.
var _ = Describe("metrics of a whole system", Ordered, func() {
	var whole *launch.Server
	var nodes *simulate.Nodes

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
		Eventually(func(g Gomega) {
			resp, err := launch.Send(ctx, whole.Config, launch.Request{Method: "GET", Path: "/api/v1/namespaces/default/serviceaccounts/default"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(resp.Status).To(Equal(200), "the account of the pods")
		}).Should(Succeed())
		nodes, err = simulate.Start(whole.Config)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(nodes.Stop)
	})

	It("the scheduler counts the pods that it has no node for", func(ctx SpecContext) {
		post(ctx, "/api/v1/namespaces/default/pods", `{apiVersion: v1, kind: Pod, metadata: {name: waits}, spec: {containers: [{name: a, image: a}]}}`)
		serves(ctx, `scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"}`,
			`scheduler_scheduling_attempt_duration_seconds_count{profile="default-scheduler",result="unschedulable"}`,
			`scheduler_pending_pods{queue="unschedulable"} 1`, `scheduler_pending_pods{queue="active"} 0`,
			`scheduler_queue_incoming_pods_total{event="PodAdd",queue="active"}`, `scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"}`)
	})

	It("the scheduler counts the pods that get a node", func(ctx SpecContext) {
		Expect(nodes.Add(ctx, "n", nil)).To(Succeed())
		serves(ctx, `scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"}`,
			`scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.001"}`, `scheduler_pod_scheduling_attempts_bucket{le="1"}`,
			`scheduler_pod_scheduling_duration_seconds_count{attempts="`, `scheduler_pod_scheduling_sli_duration_seconds_count{attempts="`,
			`scheduler_queue_incoming_pods_total{event="Node`, `scheduler_scheduler_cache_size{type="nodes"} 1`, `scheduler_goroutines{operation="binding"} 0`)
	})

	It("the node controller measures zones", func(ctx SpecContext) {
		serves(ctx, `node_collector_zone_size{zone=""} 1`, `node_collector_zone_health{zone=""} 100`, `node_collector_unhealthy_nodes_in_zone{zone=""} 0`)
	})

	It("the job controller counts syncs, and jobs and pods that finish", func(ctx SpecContext) {
		post(ctx, "/apis/batch/v1/namespaces/default/jobs", `{apiVersion: batch/v1, kind: Job, metadata: {name: once}, spec: {template:
			{metadata: {annotations: {simulate.svc.dev/exit-code: "0"}}, spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}`)
		serves(ctx, `job_controller_job_syncs_total{action="pods_created",completion_mode="NonIndexed",result="success"}`,
			`job_controller_job_sync_duration_seconds_count{action="pods_created",completion_mode="NonIndexed",result="success"}`,
			`job_controller_job_pods_finished_total{completion_mode="NonIndexed",result="succeeded"} 1`,
			`job_controller_jobs_finished_total{completion_mode="NonIndexed",reason="",result="succeeded"} 1`)
	})

	It("allocations of addresses and node ports are counted", func(ctx SpecContext) {
		post(ctx, "/api/v1/namespaces/default/services", `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: NodePort, ports: [{port: 80}]}}`)
		post(ctx, "/api/v1/namespaces/default/services", `{apiVersion: v1, kind: Service, metadata: {name: named}, spec: {clusterIP: 10.0.0.9, ports: [{port: 80}]}}`)
		taken := `{apiVersion: v1, kind: Service, metadata: {name: late}, spec: {clusterIP: 10.0.0.9, ports: [{port: 80}]}}`
		resp, err := launch.Send(ctx, whole.Config, launch.Request{Method: "POST", Path: "/api/v1/namespaces/default/services", ContentType: "application/yaml", Body: taken})
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.Status).To(Equal(422), resp.Body)
		serves(ctx, `kube_apiserver_clusterip_allocator_allocation_total{cidr="10.0.0.0/24",scope="dynamic"}`,
			`kube_apiserver_clusterip_allocator_allocation_total{cidr="10.0.0.0/24",scope="static"}`,
			`kube_apiserver_clusterip_allocator_allocation_errors_total{cidr="10.0.0.0/24",scope="static"} 1`,
			`kube_apiserver_nodeport_allocator_allocation_total{scope="dynamic"} 1`)
	})

	It("the queries of the dashboard and of the alerts name metrics that are served", func(ctx SpecContext) {
		var series []string
		for _, file := range []string{"dashboard.json", "alerts.yaml"} {
			content, err := os.ReadFile(filepath.Join("..", "..", "config", "components", "monitoring", file))
			Expect(err).NotTo(HaveOccurred())
			// Every metric is followed by a brace (hack/tools/monitoring).
			for _, match := range regexp.MustCompile(`([a-z][a-z0-9_]*)\{`).FindAllStringSubmatch(string(content), -1) {
				series = append(series, match[1])
			}
		}
		slices.Sort(series)
		series = slices.Compact(series)
		Expect(len(series)).To(BeNumerically(">", 20))
		serves(ctx, series...)
	})

	It("the rules and dashboards of kubernetes-mixin find their metrics and labels", func(ctx SpecContext) {
		for _, path := range []string{"/api/v1/namespaces/default/configmaps", "/api/v1/configmaps", "/api/v1/namespaces/default"} {
			resp, err := launch.Send(ctx, whole.Config, launch.Request{Method: "GET", Path: path})
			Expect(err).NotTo(HaveOccurred())
			Expect(resp.Status).To(Equal(200), resp.Body)
		}
		Eventually(func(g Gomega) {
			resp, err := launch.Send(ctx, whole.Config, launch.Request{Method: "GET", Path: "/metrics"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(mixin.Missing(resp.Body, mixin.ControlPlane)).To(BeEmpty())
		}).Should(Succeed())
	})
})
