package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"
	"k8s.io/utils/ptr"
)

// sampledAt is when fake agents measure.
var sampledAt = metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))

func cpuOf(nano uint64) *statsapi.CPUStats {
	return &statsapi.CPUStats{Time: sampledAt, UsageNanoCores: &nano}
}

func memoryOf(bytes uint64) *statsapi.MemoryStats {
	return &statsapi.MemoryStats{Time: sampledAt, WorkingSetBytes: &bytes, UsageBytes: ptr.To(2 * bytes)}
}

// uses is what an agent says that a pod uses: each container a tenth of a
// processor and 10 MiB.
func uses(p *corev1.Pod) statsapi.PodStats {
	s := statsapi.PodStats{PodRef: statsapi.PodReference{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}}
	for _, c := range p.Spec.Containers {
		s.Containers = append(s.Containers, statsapi.ContainerStats{Name: c.Name, CPU: cpuOf(100e6), Memory: memoryOf(10 << 20)})
	}
	return s
}

// serveSummary lets the agent say that its node uses half a processor and 1
// GiB, and what its pods use. It returns how often it was asked.
func (a *fakeAgent) serveSummary(pods ...statsapi.PodStats) *atomic.Int32 {
	asked := &atomic.Int32{}
	summary := statsapi.Summary{Node: statsapi.NodeStats{NodeName: a.node, CPU: cpuOf(500e6), Memory: memoryOf(1 << 30)}, Pods: pods}
	a.HandleFunc("GET /stats/summary", func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.RawQuery != "only_cpu_and_memory=true" {
			http.Error(w, "too much", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(summary)
	})
	return asked
}

var _ = Describe("kubectl top", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	It("shows what nodes use", func(ctx SpecContext) {
		agent := newFakeAgent(ctx)
		agent.serveSummary()
		k.run("patch", "node", agent.node, "--subresource=status", "--type=merge", "-p", `{"status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}}`)
		k.run("label", "node", agent.node, "room=one")
		Expect(rows(k.run("top", "nodes", "--no-headers"))).To(ContainElement(agent.node + " 500m 25% 1024Mi 25%"))
		Expect(rows(k.run("top", "node", agent.node, "--no-headers"))).To(Equal([]string{agent.node + " 500m 25% 1024Mi 25%"}))
		Expect(rows(k.run("top", "nodes", "-l", "room=one", "--no-headers"))).To(HaveLen(1))
		Expect(k.fails("", "top", "node", "none")).To(ContainSubstring(`nodes "none" not found`))
		table := rows(k.run("get", "nodes.metrics.k8s.io", agent.node))
		Expect(table).To(Equal([]string{"NAME CPU MEMORY WINDOW", agent.node + " 500m 1Gi 30s"}))
		got := k.get("nodes.metrics.k8s.io", agent.node)
		Expect(got).To(HaveKeyWithValue("timestamp", "2030-01-02T03:04:05Z"))
		Expect(got).To(HaveKeyWithValue("window", "30s"))
		Expect(got).To(HaveKeyWithValue("usage", object{"cpu": "500m", "memory": "1Gi"}))
	})

	It("shows what pods use, matched by UID", func(ctx SpecContext) {
		agent := newFakeAgent(ctx)
		web := agent.pod(ctx, k.Namespace, "web", "a", "b")
		db := agent.pod(ctx, k.Namespace, "db", "a")
		replaced, young, idle, done := agent.pod(ctx, k.Namespace, "replaced", "a"), agent.pod(ctx, k.Namespace, "young", "a", "b"),
			agent.pod(ctx, k.Namespace, "idle", "a"), makePod(ctx, k.Namespace, "done", corev1.PodSpec{NodeName: agent.node}, corev1.PodStatus{Phase: corev1.PodSucceeded}, "a")
		makePod(ctx, k.Namespace, "waiting", corev1.PodSpec{}, corev1.PodStatus{}, "a")
		makePod(ctx, k.Namespace, "lost", corev1.PodSpec{NodeName: "no-such-node"}, corev1.PodStatus{}, "a")
		before, notYet := uses(replaced), uses(young)
		before.PodRef.UID = "that-of-its-predecessor"
		notYet.Containers[1].CPU.UsageNanoCores = nil
		agent.serveSummary(uses(web), uses(db), before, notYet, uses(done), statsapi.PodStats{PodRef: statsapi.PodReference{Namespace: k.Namespace, Name: idle.Name, UID: string(idle.UID)}})

		Expect(rows(k.run("top", "pods", "--no-headers"))).To(Equal([]string{"db 100m 10Mi", "web 200m 20Mi"}))
		Expect(rows(k.run("top", "pods", "--no-headers", "--containers", "-l", "app=web"))).To(Equal([]string{"web a 100m 10Mi", "web b 100m 10Mi"}))
		Expect(rows(k.run("top", "pods", "--no-headers", "--field-selector=metadata.name=db"))).To(Equal([]string{"db 100m 10Mi"}))
		Expect(rows(k.run("top", "pods", "--no-headers", "--sum", "--sort-by=cpu"))[0]).To(Equal("web 200m 20Mi"))
		Expect(rows(k.run("top", "pods", "-A", "--no-headers"))).To(ContainElement(k.Namespace + " web 200m 20Mi"))
		Expect(rows(k.run("get", "pods.metrics.k8s.io"))).To(Equal([]string{"NAME CPU MEMORY WINDOW", "db 100m 10Mi 30s", "web 200m 20Mi 30s"}))
		for _, pod := range []string{"replaced", "young", "idle", "done", "waiting", "lost"} {
			Expect(k.fails("", "top", "pod", pod)).To(ContainSubstring(`podmetrics.metrics.k8s.io "` + k.Namespace + "/" + pod + `" not found`))
		}
		Expect(k.fails("", "top", "pod", "none")).To(ContainSubstring(`pods "none" not found`))
		Expect(k.fails("", "get", "pods.metrics.k8s.io", "--field-selector=spec.nodeName=x")).To(ContainSubstring("field label not supported: spec.nodeName"))
	})

	It("answers in protobuf, too, and with an empty list", func(ctx SpecContext) {
		agent := newFakeAgent(ctx)
		agent.serveSummary(uses(agent.pod(ctx, k.Namespace, "web", "a")))
		metrics := metricsclient.NewForConfigOrDie(server.Config).MetricsV1beta1()
		list, err := metrics.PodMetricses(k.Namespace).List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Items).To(HaveLen(1))
		Expect(list.Items[0].Labels).To(HaveKeyWithValue("app", "web"))
		a := send(request{method: http.MethodGet, path: "/apis/metrics.k8s.io/v1beta1/namespaces/" + k.Namespace + "/pods", accept: "application/vnd.kubernetes.protobuf"})
		Expect(a.header.Get("Content-Type")).To(Equal("application/vnd.kubernetes.protobuf"))
		a = send(request{method: http.MethodGet, path: "/apis/metrics.k8s.io/v1beta1/namespaces/none/pods"})
		Expect(a.body).To(ContainSubstring(`"items":[]`))
	})

	It("sends one request to an agent for many clients", func(ctx SpecContext) {
		agent := newFakeAgent(ctx)
		asked := agent.serveSummary(uses(agent.pod(ctx, k.Namespace, "web", "a")))
		began := time.Now()
		for range 3 {
			for _, path := range []string{"nodes/" + agent.node, "namespaces/" + k.Namespace + "/pods/web"} {
				a := send(request{method: http.MethodGet, path: "/apis/metrics.k8s.io/v1beta1/" + path})
				Expect(a.status).To(Equal(http.StatusOK), a.body)
			}
		}
		// Its response is cached for five seconds.
		Expect(asked.Load()).To(And(BeNumerically(">=", 1), BeNumerically("<=", 1+time.Since(began)/(5*time.Second))))
	})

	It("omits the node and pods of an agent that does not answer, and warns about it", func(ctx SpecContext) {
		agent := newFakeAgent(ctx)
		agent.serveSummary(uses(agent.pod(ctx, k.Namespace, "web", "a")))
		broken := newFakeAgent(ctx)
		broken.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oh no", http.StatusInternalServerError) })
		broken.pod(ctx, k.Namespace, "gone", "a")
		silent := makeNode(ctx, silence())
		makePod(ctx, k.Namespace, "silent", corev1.PodSpec{NodeName: silent}, corev1.PodStatus{Phase: corev1.PodRunning}, "a")

		out, errOut := k.both("", "top", "pods", "--no-headers")
		Expect(rows(out)).To(Equal([]string{"web 100m 10Mi"}))
		Expect(errOut).To(ContainSubstring(`node "` + broken.node + `" and its pods are left out: its agent answers 500 Internal Server Error`))
		Expect(errOut).To(ContainSubstring(`node "` + silent + `" and its pods are left out: its agent`))
		out, _ = k.both("", "get", "nodes.metrics.k8s.io")
		Expect(firstColumn(out)).To(And(ContainElement(agent.node), Not(ContainElement(broken.node)), Not(ContainElement(silent))))
		Expect(k.fails("", "top", "pod", "gone")).To(ContainSubstring("NotFound"))
	})

	It("needs the permission to read metrics", func() {
		a := send(request{method: http.MethodGet, path: "/apis/metrics.k8s.io/v1beta1/nodes", anonymous: true, token: aliceToken})
		Expect(a.asStatus().Message).To(ContainSubstring(`User "alice" cannot list resource "nodes" in API group "metrics.k8s.io"`))
	})

	It("is read-only", func() {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			a := send(request{method: method, path: "/apis/metrics.k8s.io/v1beta1/nodes/x", body: "{}", contentType: "application/json"})
			Expect(a.status).To(Equal(http.StatusMethodNotAllowed), method)
		}
		var list metav1.APIResourceList
		a := send(request{method: http.MethodGet, path: "/apis/metrics.k8s.io/v1beta1"})
		Expect(json.Unmarshal([]byte(a.body), &list)).To(Succeed())
		Expect(list.APIResources).To(ConsistOf(
			metav1.APIResource{Name: "nodes", SingularName: "node", Kind: "NodeMetrics", Verbs: metav1.Verbs{"get", "list"}},
			metav1.APIResource{Name: "pods", SingularName: "pod", Namespaced: true, Kind: "PodMetrics", Verbs: metav1.Verbs{"get", "list"}},
		))
		Expect(k.run("get", "pods")).To(BeEmpty(), "pods are still those of the core group")
	})

	// By version 2 of the OpenAPI documents, kubectl looks for the kind Node in the group.
	It("is explained", since("1.24"), func() {
		Expect(k.run("explain", "nodes", "--api-version=metrics.k8s.io/v1beta1")).To(ContainSubstring("NodeMetrics sets resource usage metrics of a node"))
	})

	// kubectl misses the group only by aggregated discovery; before, it gets the error of a request.
	It("is replaced by the cluster's own metrics server, until that is removed", since("1.27"), func(ctx SpecContext) {
		agent := newFakeAgent(ctx)
		agent.serveSummary()
		const theirs = `{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": {
			"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
			"insecureSkipTLSVerify": true, "service": {"namespace": "kube-system", "name": "metrics-server"}}}`
		local := k.out("", "get", "apiservice", "v1beta1.metrics.k8s.io", "-o", "jsonpath={.spec.service}")
		Eventually(local).Should(BeEmpty())
		k.pipe(theirs, "apply", "-f", "-")
		DeferCleanup(func(ctx context.Context) {
			_, _, _ = k.Run(ctx, "", "delete", "apiservice", "v1beta1.metrics.k8s.io", "--ignore-not-found")
			Eventually(k.resources).Should(ContainElement("nodes metrics.k8s.io/v1beta1 false NodeMetrics"), "other specs read what is discovered")
		})
		Eventually(func() string { _, errOut, _ := k.try("", "top", "nodes"); return errOut }).Should(ContainSubstring("Metrics API not available"))
		Consistently(local, "1s").Should(ContainSubstring("metrics-server"))
		k.run("delete", "apiservice", "v1beta1.metrics.k8s.io")
		Eventually(func() string { out, _, _ := k.try("", "top", "nodes", "--no-headers"); return out }).Should(ContainSubstring(agent.node))
		Eventually(local).Should(BeEmpty())
	})
})
