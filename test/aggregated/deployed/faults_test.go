package deployed

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
)

// faults are the specs in which parts of the fleet and the host fail under load.
func faults() {
	It("loses no request when the API servers are restarted one after the other", func(ctx SpecContext) {
		t := startTraffic(ctx)
		kubectl(onHost, "rollout", "restart", "-n", "svc-system", "deployment/svc-apiserver")
		kubectl(onHost, "rollout", "status", "-n", "svc-system", "deployment/svc-apiserver", "--timeout=5m")
		Eventually(func() []int { return processes("apiserver --etcd-servers=") }).Should(HaveLen(2), "the old ones have ended")
		t.stop(ctx)
		Expect(t.failures).To(BeEmpty())
		Expect(t.hostFailures).To(BeEmpty())
	})

	It("loses no request when it is upgraded from the manifests of PREVIOUS, an older source tree, but those that a member of etcd had when it ended", func(ctx SpecContext) {
		if os.Getenv("PREVIOUS") == "" {
			Skip("PREVIOUS is not set")
		}
		manifests := render(ctx, root, "", components...)
		t := startTraffic(ctx)
		kubectl(onHost, "apply", "--server-side", "--force-conflicts", "-f", manifests)
		for _, name := range []string{"statefulset/svc-etcd", "deployment/svc-apiserver", "deployment/svc-controller-manager"} {
			kubectl(onHost, "rollout", "status", "-n", "svc-system", name, "--timeout=5m")
		}
		t.awaitProgress()
		t.stop(ctx)
		Expect(t.hostFailures).To(BeEmpty())
		for _, failure := range t.failures {
			Expect(failure).To(ContainSubstring("503 Service Unavailable"))
			Expect(failure).To(ContainSubstring("etcd does not answer"))
		}
	})

	DescribeTable("keeps every acknowledged write, recovers by itself, and does not harm its host",
		func(ctx SpecContext, fail func(ctx context.Context)) {
			t := startTraffic(ctx)
			t.begins()
			fail(ctx)
			t.awaitProgress()
			t.stop(ctx)
			Expect(t.hostFailures).To(BeEmpty())
		},
		Entry("when an API server is killed", func(context.Context) { signal(syscall.SIGKILL, "apiserver --etcd-servers=", 1) }),
		Entry("when all API servers are killed", func(context.Context) { signal(syscall.SIGKILL, "apiserver --etcd-servers=", -1) }),
		Entry("when an API server is suspended", func(ctx context.Context) { suspend(ctx, "apiserver --etcd-servers=") }),
		Entry("when a member of etcd is killed", func(context.Context) { signal(syscall.SIGKILL, "--name=svc-etcd-0 ", 1) }),
		Entry("when another member of etcd is killed", func(context.Context) { signal(syscall.SIGKILL, "--name=svc-etcd-1 ", 1) }),
		Entry("when the last member of etcd is killed", func(context.Context) { signal(syscall.SIGKILL, "--name=svc-etcd-2 ", 1) }),
		Entry("when a member of etcd is suspended", func(ctx context.Context) { suspend(ctx, "--name=svc-etcd-2 ") }),
		Entry("when all members of etcd are killed", func(context.Context) { signal(syscall.SIGKILL, "--name=svc-etcd-", -1) }),
		Entry("when an API server is cut off", func(ctx context.Context) { cutOff(ctx, "apiserver --etcd-servers=", 1, "") }),
		Entry("when a member of etcd is cut off", func(ctx context.Context) { cutOff(ctx, "--name=svc-etcd-1 ", 1, "") }),
		Entry("when the API servers do not reach the host", func(ctx context.Context) {
			service, err := hostClient.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			cutOff(ctx, "apiserver --etcd-servers=", -1, "ip daddr "+service.Spec.ClusterIP)
		}),
		Entry("when all controllers are killed", func(context.Context) { signal(syscall.SIGKILL, "controller-manager --svcconfig=/etc/svc/", -1) }),
	)

	It("keeps every acknowledged write, and recovers by itself, when the host's API server is suspended", func(ctx SpecContext) {
		t := startTraffic(ctx)
		Expect(kube.Signal(syscall.SIGSTOP)).To(Succeed())
		DeferCleanup(func() { _ = kube.Signal(syscall.SIGCONT) })
		waitFor(ctx, 10*time.Second)
		Expect(kube.Signal(syscall.SIGCONT)).To(Succeed())
		t.awaitProgress()
		t.stop(ctx)
	})

	It("keeps every acknowledged write, and recovers by itself, when the host's API server is killed", func(ctx SpecContext) {
		t := startTraffic(ctx)
		kube.Kill()
		Eventually(t.countHostFailures).Should(BeNumerically(">=", 20), "new connections to the host are refused")
		Expect(kube.Again(ctx)).To(Succeed())
		t.awaitProgress()
		t.stop(ctx)
	})
}

// traffic writes to the fleet through its host, and reads from both. It does not repeat a
// request that has failed.
type traffic struct {
	cancel context.CancelFunc
	group  sync.WaitGroup
	client *http.Client

	mu sync.Mutex
	// acknowledged are the names of the objects that the fleet has confirmed.
	acknowledged sets.Set[string]
	// failures are those of the fleet, hostFailures those of the host's own groups.
	failures, hostFailures []string
	hostLatencies          []time.Duration
	// before is how many of hostLatencies are of the time before the failure.
	before int
}

const (
	loadNamespace = "load"
	writers       = 4
	// requestPatience is how long a request may take before it has failed.
	requestPatience = 20 * time.Second
	// pace is the time between two requests of one client.
	pace = 20 * time.Millisecond
)

func startTraffic(ctx context.Context) *traffic {
	GinkgoHelper()
	_, _, err := onHost.Run(ctx, "", "create", "namespace", loadNamespace)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { kubectl(onHost, "delete", "namespace", loadNamespace, "--ignore-not-found", "--timeout=3m") })
	config := rest.CopyConfig(kube.Config)
	config.Timeout = requestPatience
	client, err := rest.HTTPClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(ctx)
	t := &traffic{cancel: cancel, client: client, acknowledged: sets.New[string]()}
	for i := range writers {
		t.group.Go(func() { t.write(ctx, i) })
	}
	t.group.Go(func() { t.read(ctx) })
	t.awaitProgress()
	return t
}

// do sends a request, and returns why it has failed.
func (t *traffic) do(ctx context.Context, method, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, kube.Config.Host+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return err
}

// write creates objects until ctx is done.
func (t *traffic) write(ctx context.Context, writer int) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("w%d-%d", writer, i)
		err := t.do(ctx, http.MethodPost, fleetPath+"/api/v1/namespaces/"+loadNamespace+"/configmaps", `{"metadata":{"name":"`+name+`"}}`)
		t.mu.Lock()
		switch {
		case err == nil:
			t.acknowledged.Insert(name)
		case ctx.Err() == nil:
			t.failures = append(t.failures, fmt.Sprintf("%s %s: %v", time.Now().Format(time.StampMilli), name, err))
		}
		t.mu.Unlock()
		waitFor(ctx, pace)
	}
}

// read reads an object of the host until ctx is done.
func (t *traffic) read(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		err := t.do(ctx, http.MethodGet, "/api/v1/namespaces/"+loadNamespace, "")
		t.mu.Lock()
		if err != nil && ctx.Err() == nil {
			t.hostFailures = append(t.hostFailures, err.Error())
		}
		t.hostLatencies = append(t.hostLatencies, time.Since(began))
		t.mu.Unlock()
		waitFor(ctx, pace)
	}
}

func waitFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// begins notes that what is to fail will fail now.
func (t *traffic) begins() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before = len(t.hostLatencies)
}

// percentiles describes latencies.
func percentiles(latencies []time.Duration) string {
	if len(latencies) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(latencies))
	return fmt.Sprintf("p50 %s, p99 %s", sorted[len(sorted)/2], sorted[len(sorted)*99/100])
}

func (t *traffic) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.acknowledged.Len()
}

func (t *traffic) countHostFailures() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.hostFailures)
}

// awaitProgress waits until each writer has written some objects more.
func (t *traffic) awaitProgress() {
	GinkgoHelper()
	from := t.count()
	Eventually(t.count).Should(BeNumerically(">", from+10*writers))
}

// stop ends the load, and checks that the fleet has what it has acknowledged.
func (t *traffic) stop(ctx context.Context) {
	GinkgoHelper()
	t.cancel()
	t.group.Wait()
	t.client.CloseIdleConnections()
	found := sets.New[string]()
	list, err := fleetClient.CoreV1().ConfigMaps(loadNamespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, item := range list.Items {
		found.Insert(item.Name)
	}
	AddReportEntry("load", fmt.Sprintf("%d writes acknowledged, %d failed; %d reads of the host, %d failed; before the failure %s, since then %s; first failures: %v",
		t.acknowledged.Len(), len(t.failures), len(t.hostLatencies), len(t.hostFailures),
		percentiles(t.hostLatencies[:t.before]), percentiles(t.hostLatencies[t.before:]), t.failures[:min(3, len(t.failures))]))
	Expect(sets.List(t.acknowledged.Difference(found))).To(BeEmpty(), "acknowledged writes that are lost")
}

// processes returns those in pods of the host whose command line contains words.
func processes(words string) []int {
	GinkgoHelper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	Expect(err).NotTo(HaveOccurred())
	var pids []int
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		cgroup, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		if err != nil || !strings.Contains(string(cgroup), hostMachine.Bridge) || !strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), words) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		Expect(err).NotTo(HaveOccurred())
		pids = append(pids, pid)
	}
	return pids
}

// signal sends a signal to n of the processes whose command line contains words, or to all
// if n is negative, and returns them.
func signal(sig syscall.Signal, words string, n int) []int {
	GinkgoHelper()
	pids := processes(words)
	Expect(pids).NotTo(BeEmpty(), words)
	if n >= 0 {
		pids = pids[:n]
	}
	for _, pid := range pids {
		Expect(syscall.Kill(pid, sig)).To(Succeed())
	}
	return pids
}

// cutOff lets n of the processes whose command line contains words, or all if n is
// negative, send no packets that match an expression of nftables, or none at all, for
// some seconds. The other side gets no answer.
func cutOff(ctx context.Context, words string, n int, match string) {
	GinkgoHelper()
	nft := func(pid int, commands string) error {
		cmd := exec.CommandContext(ctx, "nsenter", "--net=/proc/"+strconv.Itoa(pid)+"/ns/net", "nft", "-f", "-")
		cmd.Stdin = strings.NewReader(commands)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return nil
	}
	pids := processes(words)
	Expect(pids).NotTo(BeEmpty(), words)
	if n >= 0 {
		pids = pids[:n]
	}
	for _, pid := range pids {
		Expect(nft(pid, "table inet cut { chain out { type filter hook output priority 0; oifname != lo "+match+" drop; }; }")).To(Succeed())
		defer func() { Expect(nft(pid, "delete table inet cut")).To(Succeed()) }()
	}
	waitFor(ctx, 10*time.Second)
}

// suspend suspends a process for as long as its probes need to notice that.
func suspend(ctx context.Context, words string) {
	GinkgoHelper()
	pid := signal(syscall.SIGSTOP, words, 1)[0]
	waitFor(ctx, 10*time.Second)
	// The agent may have killed it.
	_ = syscall.Kill(pid, syscall.SIGCONT)
}
