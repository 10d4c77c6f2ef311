// Package soak keeps an API server, a controller manager and simulated nodes busy
// for a while, kills them meanwhile, and then checks that nothing is left behind.
// $SOAK is the duration, 60s by default.
package soak

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/simulate"
)

const (
	// users is the number of concurrent users. Each has its own namespace, which it
	// sometimes deletes and creates again.
	users = 6
	// kills is the number of kills in the first half.
	kills = 4
	// machines is the number of simulated nodes.
	machines = 10
	// settleTimeout bounds how long the controllers may work after the users stop.
	settleTimeout = 5 * time.Minute
)

func TestSoak(t *testing.T) {
	duration := time.Minute
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("$SOAK: %v", err)
		}
	}
	s := newCluster(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	// The memory is compared over the second half, when caches are full: what still
	// grows then would grow without end.
	s.work(duration/2, seed, true)
	s.expectNothingLeft()
	before := s.memory()
	s.work(duration/2, seed+1, false)
	s.expectNothingLeft()
	after := s.memory()
	t.Logf("%d operations; the manager's live heap: %.1f MB after the first half, %.1f MB after the second", s.operations.Load(), before/1e6, after/1e6)
	if after > 1.1*before+4e6 { // the event library's cache fills for some minutes
		t.Errorf("the manager's live heap has grown from %.1f to %.1f MB", before/1e6, after/1e6)
	}
}

// cluster is an API server and a manager, each a process, with nodes.
type cluster struct {
	t       *testing.T
	dir     string
	port    string
	server  *launch.Server
	manager *launch.Process
	// serving is the client configuration for the manager's own port.
	serving *rest.Config
	client  kubernetes.Interface
	objects metadata.Interface
	nodes   *simulate.Nodes

	operations atomic.Int64
}

func newCluster(t *testing.T) *cluster {
	g := NewWithT(t)
	dir, err := launch.TempDir()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port, err := launch.FreePort()
	g.Expect(err).NotTo(HaveOccurred())
	s := &cluster{t: t, dir: filepath.Join(dir, "data"), port: port}
	s.startServer()
	t.Cleanup(func() { s.server.Kill() })
	s.startManager()
	t.Cleanup(func() { s.manager.Kill() })
	s.client, err = kubernetes.NewForConfig(s.server.Config)
	g.Expect(err).NotTo(HaveOccurred())
	quiet := rest.CopyConfig(s.server.Config)
	quiet.WarningHandler = rest.NoWarnings{} // about nodes without agents
	s.objects, err = metadata.NewForConfig(quiet)
	g.Expect(err).NotTo(HaveOccurred())
	s.nodes, err = simulate.Start(s.server.Config)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.nodes.Stop)
	for i := range machines {
		g.Expect(s.nodes.Add(t.Context(), fmt.Sprintf("soak-%d", i), nil)).To(Succeed())
	}
	return s
}

// startServer starts an API server on the same data and port as before.
func (s *cluster) startServer() {
	s.t.Helper()
	var err error
	s.server, err = launch.UpAt(s.t.Context(), s.dir, s.port, "--controllers=")
	NewWithT(s.t).Expect(err).NotTo(HaveOccurred())
}

// startManager starts a manager on a new port.
func (s *cluster) startManager() {
	s.t.Helper()
	g := NewWithT(s.t)
	port, err := launch.FreePort()
	g.Expect(err).NotTo(HaveOccurred())
	s.serving = rest.CopyConfig(s.server.Config)
	s.serving.Host = "https://127.0.0.1:" + port
	s.serving.CAData, s.serving.Insecure = nil, true // it signs its certificate itself
	s.manager, err = s.server.Manager(s.t.Context(), "--secure-port="+port,
		"--leader-elect-lease-duration=30s", "--leader-elect-renew-deadline=20s", "--leader-elect-retry-period=200ms")
	g.Expect(err).NotTo(HaveOccurred())
}

// killManager kills the manager and ends its lease, for which the next one would wait: it is
// so long that a busy machine does not make a manager lose it.
func (s *cluster) killManager() {
	s.t.Helper()
	s.manager.Kill()
	NewWithT(s.t).Eventually(func() error {
		err := s.client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(s.t.Context(), "kube-controller-manager", metav1.DeleteOptions{})
		return ctrlclient.IgnoreNotFound(err)
	}).WithTimeout(launch.Patience).Should(Succeed())
}

// work lets the users work for a while. If kill is set, it kills the API server and
// the manager in turn, at random times.
func (s *cluster) work(duration time.Duration, seed uint64, kill bool) {
	ctx, cancel := context.WithTimeout(s.t.Context(), duration)
	defer cancel()
	var working sync.WaitGroup
	for i := range users {
		u := &user{
			cluster:   s,
			random:    rand.New(rand.NewPCG(seed, uint64(i))),
			namespace: fmt.Sprintf("soak-%d", i),
		}
		working.Go(func() { u.work(ctx) })
	}
	if kill {
		random := rand.New(rand.NewPCG(seed, users))
		for i := range kills {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(random.Int64N(int64(duration / kills)))):
			}
			if i%2 == 0 {
				s.killManager()
				s.startManager()
			} else {
				s.server.Kill()
				s.startServer()
			}
		}
	}
	working.Wait()
	s.expectConvergence()
}

// expectConvergence waits until every workload has its desired state: neither fewer pods nor more, and no job that has lost or doubled a pod.
func (s *cluster) expectConvergence() {
	s.t.Helper()
	NewWithT(s.t).Eventually(func() ([]string, error) { return s.unfinished(s.t.Context()) }).
		WithTimeout(settleTimeout).WithPolling(200*time.Millisecond).Should(BeEmpty(), "workloads that do not become what they should be\n%s", tail(s.manager.Output()))
}

// unfinished returns the workloads that do not have their desired state.
func (s *cluster) unfinished(ctx context.Context) ([]string, error) {
	var unfinished []string
	replicaSets, err := s.client.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := s.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	owned := map[string]int32{} // pods that count, by owner
	for _, pod := range pods.Items {
		if ref := metav1.GetControllerOf(&pod); ref != nil && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			owned[string(ref.UID)]++
		}
		if pod.DeletionTimestamp != nil {
			unfinished = append(unfinished, fmt.Sprintf("pod %s/%s is terminating", pod.Namespace, pod.Name))
		}
	}
	for _, rs := range replicaSets.Items {
		if got, want := owned[string(rs.UID)], *rs.Spec.Replicas; got != want || rs.Status.ReadyReplicas != want {
			unfinished = append(unfinished, fmt.Sprintf("replica set %s/%s: %d pods, %d ready, want %d", rs.Namespace, rs.Name, got, rs.Status.ReadyReplicas, want))
		}
	}
	deployments, err := s.client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, d := range deployments.Items {
		if st := d.Status; st.ObservedGeneration != d.Generation || st.UpdatedReplicas != *d.Spec.Replicas || st.AvailableReplicas != *d.Spec.Replicas || st.Replicas != *d.Spec.Replicas {
			unfinished = append(unfinished, fmt.Sprintf("deployment %s/%s: %+v", d.Namespace, d.Name, st))
		}
	}
	jobs, err := s.client.BatchV1().Jobs("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, j := range jobs.Items {
		if j.Status.Succeeded != *j.Spec.Completions || j.Status.Active != 0 || j.Status.Failed != 0 {
			unfinished = append(unfinished, fmt.Sprintf("job %s/%s: %+v", j.Namespace, j.Name, j.Status))
		}
	}
	controllers, err := s.unfinishedControllers(ctx)
	if err != nil {
		return nil, err
	}
	sets, err := s.unfinishedSets(ctx)
	return append(append(unfinished, controllers...), sets...), err
}

// expectNothingLeft deletes the users' namespaces, and fails if anything is left:
// objects in them, objects that keep terminating, requests in work queues.
func (s *cluster) expectNothingLeft() {
	s.t.Helper()
	g := NewWithT(s.t)
	ctx := s.t.Context()
	for i := range users {
		err := s.client.CoreV1().Namespaces().Delete(ctx, fmt.Sprintf("soak-%d", i), metav1.DeleteOptions{})
		if err != nil {
			g.Expect(err.Error()).To(ContainSubstring("not found"))
		}
	}
	g.Eventually(func() ([]string, error) { return s.left(ctx) }).
		WithTimeout(settleTimeout).WithPolling(200*time.Millisecond).Should(BeEmpty(), "what is left\n%s", tail(s.manager.Output()))
	g.Eventually(func() (map[string]float64, error) { return s.queued(ctx) }).
		WithTimeout(settleTimeout).WithPolling(time.Second).Should(BeEmpty(), "work that is still in queues")
}

// left returns the objects in the users' namespaces and all terminating objects, of
// every served kind.
func (s *cluster) left(ctx context.Context) ([]string, error) {
	var left []string
	lists, err := s.client.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !strings.Contains(fmt.Sprint(r.Verbs), "list") {
				continue
			}
			found, err := s.objects.Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			for _, o := range found.Items {
				if strings.HasPrefix(o.Namespace, "soak-") || o.DeletionTimestamp != nil {
					left = append(left, fmt.Sprintf("%s %s/%s %v", r.Name, o.Namespace, o.Name, o.Finalizers))
				}
			}
		}
	}
	return left, nil
}

// queued returns the work queues that are not empty.
func (s *cluster) queued(ctx context.Context) (map[string]float64, error) {
	families, err := s.metrics(ctx)
	if err != nil {
		return nil, err
	}
	queued := map[string]float64{}
	depths, ok := families["workqueue_depth"]
	if !ok {
		return nil, fmt.Errorf("/metrics has no workqueue_depth")
	}
	for _, metric := range depths.Metric {
		if depth := metric.GetGauge().GetValue(); depth > 0 {
			queued[metric.String()] = depth
		}
	}
	return queued, nil
}

// memory returns the manager's live heap in bytes: it collects garbage until
// that frees nothing more.
func (s *cluster) memory() float64 {
	s.t.Helper()
	g := NewWithT(s.t)
	for least := math.Inf(1); ; {
		// With gc=1, the server collects garbage before the heap profile.
		status, _, err := launch.Get(s.t.Context(), s.serving, "/debug/pprof/heap?gc=1")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status).To(Equal(http.StatusOK))
		families, err := s.metrics(s.t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		heap := families["go_memstats_heap_alloc_bytes"].Metric[0].GetGauge().GetValue()
		if heap > 0.99*least {
			return least
		}
		least = heap
	}
}

func (s *cluster) metrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	status, body, err := launch.Get(ctx, s.serving, "/metrics")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("/metrics answers %d", status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(body))
}

// tail returns the end of a log.
func tail(log string) string {
	lines := strings.Split(log, "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
