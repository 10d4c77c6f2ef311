package controllers

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"svc.dev/svc/test/launch"
)

// runExtender serves a scheduler extender until the spec ends: it rejects the nodes with
// the label licence=none, prefers those with licence=best, and binds pods.
func runExtender(name string) (url string) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /filter", func(w http.ResponseWriter, r *http.Request) {
		var args extenderv1.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		result := extenderv1.ExtenderFilterResult{Nodes: &corev1.NodeList{}, FailedNodes: extenderv1.FailedNodesMap{}}
		for _, n := range args.Nodes.Items {
			if n.Labels["licence"] == "none" {
				result.FailedNodes[n.Name] = "no licence"
			} else {
				result.Nodes.Items = append(result.Nodes.Items, n)
			}
		}
		_ = json.NewEncoder(w).Encode(result)
	})
	mux.HandleFunc("POST /prioritize", func(w http.ResponseWriter, r *http.Request) {
		var args extenderv1.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var result extenderv1.HostPriorityList
		for _, n := range args.Nodes.Items {
			if n.Labels["licence"] == "best" {
				result = append(result, extenderv1.HostPriority{Host: n.Name, Score: extenderv1.MaxExtenderPriority})
			}
		}
		_ = json.NewEncoder(w).Encode(result)
	})
	mux.HandleFunc("POST /bind", func(w http.ResponseWriter, r *http.Request) {
		var args extenderv1.ExtenderBindingArgs
		var result extenderv1.ExtenderBindingResult
		err := json.NewDecoder(r.Body).Decode(&args)
		if err == nil {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: args.PodNamespace, Name: args.PodName}}
			err = client.SubResource("binding").Create(r.Context(), pod, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: args.PodNamespace, Name: args.PodName, UID: args.PodUID, Annotations: map[string]string{"bound-by": name}},
				Target:     corev1.ObjectReference{Kind: "Node", Name: args.Node},
			})
		}
		if err != nil {
			result.Error = err.Error()
		}
		_ = json.NewEncoder(w).Encode(result)
	})
	server := httptest.NewServer(mux)
	DeferCleanup(server.Close)
	return server.URL
}

var _ = Describe("scheduler extenders", func() {
	It("reject nodes, prefer some, and bind pods", func(ctx SpecContext) {
		p := newPool(ctx)
		file := filepath.Join(GinkgoT().TempDir(), "scheduler.yaml")
		Expect(os.WriteFile(file, []byte(strings.NewReplacer("NAME", p.name, "URL", runExtender(p.name)).Replace(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: NAME}]
extenders:
- urlPrefix: URL
  filterVerb: filter
  prioritizeVerb: prioritize
  bindVerb: bind
  weight: 100
  httpTimeout: 1m
`)), 0o600)).To(Succeed())
		licence := func(kind string) string {
			return p.addNode(ctx, func(n *corev1.Node) { n.Labels["licence"] = kind })
		}
		licence("none")
		extended := func(pod *corev1.Pod) { pod.Spec.SchedulerName = p.name }
		p.addPod(ctx, "first", extended)
		scheduler, err := server.StandbyManager("--leader-elect=false", "--controllers=scheduler", "--scheduler-config="+file)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() {
			_, err := scheduler.Stop(launch.Patience)
			Expect(err).NotTo(HaveOccurred())
		})
		Eventually(scheduled(ctx, p.name, "first")).Should(ContainSubstring("1 no licence"), scheduler.Output)

		other := licence("other")
		Eventually(nodeOf(ctx, p.name, "first")).Should(Equal(other))
		Expect(run(ctx, "-n", p.name, "get", "pod", "first", "-o", "jsonpath={.metadata.annotations.bound-by}")).To(Equal(p.name))
		best := licence("best")
		p.addPod(ctx, "probe", func(pod *corev1.Pod) {
			extended(pod)
			pod.Spec.NodeSelector[corev1.LabelHostname] = best
		})
		Eventually(nodeOf(ctx, p.name, "probe")).Should(Equal(best)) // the scheduler has seen the node
		p.addPod(ctx, "second", extended)
		p.addPod(ctx, "third", extended)
		Eventually(nodeOf(ctx, p.name, "second")).Should(Equal(best))
		Eventually(nodeOf(ctx, p.name, "third")).Should(Equal(best))
	})
})
