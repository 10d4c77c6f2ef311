package node

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// chaos is a cluster of its own whose parts are killed: an API server, and a machine with an
// agent on a small disk.
type chaos struct {
	dataDir, port string
	server        *launch.Server
	client        ctrlclient.Client
	kubectl       launch.Kubectl

	disk    string
	machine *launch.Machine
	cluster launch.Cluster
	agent   *launch.Agent
	// mayRestart are the pods whose shim was killed.
	mayRestart map[string]bool
	// hogs are the pods that take memory.
	hogs []string
	// ahead are what goes wrong next.
	ahead  []string
	random *rand.Rand
}

// newChaos starts the parts. They end with the spec.
func newChaos(ctx SpecContext, seed uint64) *chaos {
	GinkgoHelper()
	c := &chaos{dataDir: filepath.Join(newDir(), "data"), port: freePort(), mayRestart: map[string]bool{}, random: rand.New(rand.NewPCG(seed, 0))}
	c.startServer(ctx)
	DeferCleanup(func() { c.server.Kill() })
	c.disk = smallDisk(ctx, 256<<20, 65536)
	c.machine = newMachine(ctx)
	program, err := launch.Svclet.Program()
	Expect(err).NotTo(HaveOccurred())
	c.agent, err = c.machine.NewAgent(launch.Svclet, program, "chaos")
	Expect(err).NotTo(HaveOccurred())
	for i, arg := range c.agent.Args {
		if strings.HasPrefix(arg, "--root-dir=") {
			c.agent.Args[i] = "--root-dir=" + c.disk
		}
	}
	c.agent.Fields = littleMemory(hogMemory+memoryLeft-10<<20, memoryLeft)
	c.cluster, err = c.server.Cluster()
	Expect(err).NotTo(HaveOccurred())
	Expect(c.agent.Configure(c.cluster)).To(Succeed())
	Expect(c.agent.Start()).To(Succeed())
	DeferCleanup(func() { c.agent.Kill() })
	return c
}

// startServer starts the API server and its controllers, for the first time or again.
func (c *chaos) startServer(ctx context.Context) {
	GinkgoHelper()
	var err error
	c.server, err = launch.UpAt(ctx, c.dataDir, c.port)
	Expect(err).NotTo(HaveOccurred())
	c.client, err = clientOf(c.server.Config)
	Expect(err).NotTo(HaveOccurred())
	c.kubectl = launch.Kubectl{Kubeconfig: c.server.Kubeconfig, Home: filepath.Dir(c.dataDir)}
}

// keepAgent starts the agent again if it has ended, as systemd does: it ends when it starts
// while containerd is away.
func (c *chaos) keepAgent() {
	GinkgoHelper()
	select {
	case <-c.agent.Exited():
		Expect(c.agent.Start()).To(Succeed())
	default:
	}
}

// sandboxes returns the IDs of the sandboxes of the spec's pods, by the names of the pods.
func (c *chaos) sandboxes(ctx context.Context) (map[string]string, error) {
	conn, err := grpc.NewClient(c.machine.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	list, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	found := map[string]string{}
	for _, sandbox := range list.GetItems() {
		found[sandbox.Metadata.Name] = sandbox.Id
	}
	return found, err
}

// killShim kills the shim of a random pod, which ends its containers.
func (c *chaos) killShim(ctx context.Context) {
	GinkgoHelper()
	sandboxes, err := c.sandboxes(ctx)
	if err != nil {
		return // containerd was just killed
	}
	pods := make([]string, 0, len(sandboxes))
	for pod := range sandboxes {
		pods = append(pods, pod)
	}
	if len(pods) == 0 {
		return
	}
	pod := pods[c.random.IntN(len(pods))]
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(line, []byte("containerd-shim")) || !bytes.Contains(line, []byte(sandboxes[pod])) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		Expect(err).NotTo(HaveOccurred())
		c.mayRestart[pod] = true
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// fillDisk fills the disk of the agent, and returns what frees it.
func (c *chaos) fillDisk() (free func()) {
	GinkgoHelper()
	file := filepath.Join(c.disk, "ballast")
	ballast, err := os.Create(file)
	Expect(err).NotTo(HaveOccurred())
	block := make([]byte, 1<<20)
	for {
		if _, err := ballast.Write(block); err != nil {
			break // it is full
		}
	}
	return func() {
		ballast.Close()
		Expect(os.Remove(file)).To(Succeed())
	}
}

// disturbances are the things that go wrong.
var disturbances = []string{"agent", "agent and containerd", "containerd", "shim", "API server", "disk full", "memory"}

// next returns what goes wrong next: all of the disturbances in a random order, and again.
func (c *chaos) next() string {
	if len(c.ahead) == 0 {
		c.ahead = slices.Clone(disturbances)
		c.random.Shuffle(len(c.ahead), func(i, j int) { c.ahead[i], c.ahead[j] = c.ahead[j], c.ahead[i] })
	}
	what := c.ahead[0]
	c.ahead = c.ahead[1:]
	return what
}

// disturb does one of the things that go wrong.
func (c *chaos) disturb(ctx SpecContext) (what string) {
	GinkgoHelper()
	what = c.next()
	killContainerd := func() {
		if pid := listener(c.machine.Endpoint()); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	switch what {
	case "agent":
		c.agent.Kill()
	case "agent and containerd":
		c.agent.Kill()
		killContainerd()
	case "containerd":
		killContainerd()
	case "shim":
		c.killShim(ctx)
	case "API server":
		c.server.Kill()
		c.startServer(ctx)
	case "disk full":
		free := c.fillDisk()
		c.agent.Kill() // it starts on a full disk
		Expect(c.agent.Start()).To(Succeed())
		c.pause(time.Duration(c.random.IntN(4000)) * time.Millisecond)
		free()
	case "memory":
		c.takeMemory(ctx)
	}
	return what
}

// hogMemory is what a hog takes, in bytes: more than pods may use before one is evicted.
// memoryLeft, in bytes, is the threshold of evictions, and what all others have.
const hogMemory, memoryLeft = 300 << 20, 200 << 20

// mostHogs bounds the hogs that have not been evicted. With more of them, the kernel ends some
// before the agent evicts one, and those wait for up to five minutes until they are restarted.
const mostHogs = 2

// takeMemory starts a pod that takes almost all memory of the pods. It is evicted while other
// things go wrong.
func (c *chaos) takeMemory(ctx SpecContext) {
	GinkgoHelper()
	lasting, err := c.lasting(ctx)
	Expect(err).NotTo(HaveOccurred())
	if len(lasting) >= mostHogs {
		return
	}
	name := fmt.Sprintf("hog-%d", len(c.hogs))
	c.hogs = append(c.hogs, name)
	// Sleep does not read what dd has in memory.
	c.create(ctx, name, corev1.ResourceRequirements{}, "sh", "-c", fmt.Sprintf("mkfifo /pipe; sleep 100000 </pipe & exec dd if=/dev/zero of=/pipe bs=%d", hogMemory))
}

// lasting returns the hogs that have not been evicted.
func (c *chaos) lasting(ctx context.Context) (lasting []string, err error) {
	pods, err := c.pods(ctx)
	for _, hog := range c.hogs {
		if p := pods[hog]; p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Evicted" {
			lasting = append(lasting, hog)
		}
	}
	return lasting, err
}

// endHogs waits until all pods that take memory have been evicted and the node has memory, and
// deletes them.
func (c *chaos) endHogs(ctx SpecContext) {
	GinkgoHelper()
	Eventually(func() ([]string, error) {
		c.keepAgent()
		return c.lasting(ctx)
	}, 2*launch.Patience).Should(BeEmpty())
	Eventually(func() (*corev1.Node, error) {
		c.keepAgent()
		n := &corev1.Node{}
		return n, c.client.Get(ctx, ctrlclient.ObjectKey{Name: "chaos"}, n)
	}, 2*launch.Patience).Should(conditionOf(corev1.NodeMemoryPressure, corev1.ConditionFalse))
	for _, hog := range c.hogs {
		_, errOut, err := c.kubectl.Run(ctx, "", "delete", "pod", hog, "--namespace=default", "--wait=false")
		Expect(err).NotTo(HaveOccurred(), errOut)
	}
}

// pause lets time pass: the spec is about what happens at random times.
func (c *chaos) pause(d time.Duration) { <-time.After(d) }

// guaranteedOf is how many pods there are for each guaranteed one.
const guaranteedOf = 6

// apply creates pods that sleep, some of them guaranteed, and waits until all are ready.
func (c *chaos) apply(ctx SpecContext, names ...string) {
	GinkgoHelper()
	for i, name := range names {
		var resources corev1.ResourceRequirements
		if i%guaranteedOf == 0 {
			resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("20Mi")}
		}
		c.create(ctx, name, resources, "sleep", "100000")
	}
	Eventually(c.lacking(ctx, names), 2*launch.Patience).Should(BeEmpty())
}

// create creates a pod that runs a command.
func (c *chaos) create(ctx SpecContext, name string, resources corev1.ResourceRequirements, command ...string) {
	GinkgoHelper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{NodeName: "chaos", TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{{
			Name: "main", Image: busybox, ImagePullPolicy: corev1.PullNever, Command: command, Resources: resources,
		}}},
	}
	// The service account is made after the start.
	Eventually(func() error { return c.client.Create(ctx, p.DeepCopy()) }).Should(Succeed())
}

// lacking returns which of these pods are not ready. It starts the agent if that has ended.
func (c *chaos) lacking(ctx context.Context, names []string) func() ([]string, error) {
	return func() (lacking []string, err error) {
		c.keepAgent()
		pods, err := c.pods(ctx)
		for _, name := range names {
			pod := pods[name]
			if matched, err := beReady().Match(&pod); err != nil || !matched {
				lacking = append(lacking, name)
			}
		}
		return lacking, err
	}
}

// pods returns the pods by name.
func (c *chaos) pods(ctx context.Context) (map[string]corev1.Pod, error) {
	var list corev1.PodList
	err := c.client.List(ctx, &list, ctrlclient.InNamespace("default"))
	found := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		found[pod.Name] = pod
	}
	return found, err
}

// running returns the IDs of the containers that run, by the names of their pods.
func (c *chaos) running(ctx context.Context) (map[string][]string, error) {
	conn, err := grpc.NewClient(c.machine.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	list, err := runtimeapi.NewRuntimeServiceClient(conn).ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}},
	})
	found := map[string][]string{}
	for _, container := range list.GetContainers() {
		pod := container.Labels["io.kubernetes.pod.name"]
		found[pod] = append(found[pod], container.Id)
	}
	return found, err
}

// story returns what is known of a pod whose containers should have gone on: its status, its
// events, and what containerd logged about the containers.
func (c *chaos) story(ctx context.Context, p corev1.Pod, containers []string) string {
	events, errOut, err := c.kubectl.Run(ctx, "", "events", "--namespace=default", "--for=pod/"+p.Name)
	if err != nil {
		events = errOut
	}
	var logged strings.Builder
	for _, file := range []string{c.machine.Log + ".1", c.machine.Log} {
		log, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(&logged, err)
		}
		for line := range strings.Lines(string(log)) {
			if slices.ContainsFunc(containers, func(id string) bool { return strings.Contains(line, id) }) {
				logged.WriteString(line)
			}
		}
	}
	return fmt.Sprintf("pod %s\n%s\n%s\n%s", p.Name, format.Object(p.Status.ContainerStatuses, 1), events, logged.String())
}

// cost returns the goroutines and the resident memory, in bytes, of the agent.
func (c *chaos) cost(ctx context.Context) (goroutines, memory float64, err error) {
	status, body, err := c.agent.Get(ctx, c.cluster, "/metrics")
	if err != nil {
		return 0, 0, err
	}
	if status != http.StatusOK {
		return 0, 0, fmt.Errorf("/metrics answers %d: %s", status, body)
	}
	for line := range strings.Lines(string(body)) {
		for name, value := range map[string]*float64{"go_goroutines ": &goroutines, "process_resident_memory_bytes ": &memory} {
			if text, ok := strings.CutPrefix(line, name); ok {
				if *value, err = strconv.ParseFloat(strings.TrimSpace(text), 64); err != nil {
					return 0, 0, err
				}
			}
		}
	}
	return goroutines, memory, nil
}

// mounts returns what is mounted below the agent's directory.
func (c *chaos) mounts() (below []string, err error) {
	all, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, c.disk+"/") {
			below = append(below, line)
		}
	}
	return below, err
}

// chaosSettings returns how long things go wrong (CHAOS=10m), with how many pods
// (CHAOS_PODS=60), and the seed of the choices (CHAOS_SEED repeats those of an earlier run).
func chaosSettings() (length time.Duration, pods int, seed uint64) {
	GinkgoHelper()
	length, pods, seed = 15*time.Second, 10, rand.Uint64()
	var err error
	if text := os.Getenv("CHAOS"); text != "" {
		length, err = time.ParseDuration(text)
		Expect(err).NotTo(HaveOccurred(), "CHAOS")
	}
	if text := os.Getenv("CHAOS_PODS"); text != "" {
		pods, err = strconv.Atoi(text)
		Expect(err).NotTo(HaveOccurred(), "CHAOS_PODS")
	}
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		Expect(err).NotTo(HaveOccurred(), "CHAOS_SEED")
	}
	AddReportEntry("CHAOS_SEED", seed)
	return length, pods, seed
}

var _ = Describe("while programs are killed at random", func() {
	var c *chaos
	ReportAfterEach(func(report SpecReport) {
		if report.Failed() && c != nil && c.agent != nil && c.agent.Process != nil {
			AddReportEntry("svclet printed", lastLines(c.agent.Output()))
			AddReportEntry("svc up printed", lastLines(c.server.Output()))
		}
	})

	It("no pod is lost, none is restarted without a cause, and nothing is left", func(ctx SpecContext) {
		length, count, seed := chaosSettings()
		c = newChaos(ctx, seed)
		names := make([]string, count)
		for i := range names {
			names[i] = fmt.Sprintf("pod-%d", i)
		}
		c.apply(ctx, names...)
		before, err := c.pods(ctx)
		Expect(err).NotTo(HaveOccurred())
		runningBefore, err := c.running(ctx)
		Expect(err).NotTo(HaveOccurred())
		goroutines, memory, err := c.cost(ctx)
		Expect(err).NotTo(HaveOccurred())

		done := map[string]int{}
		for end := time.Now().Add(length); time.Now().Before(end) || len(done) < len(disturbances); {
			done[c.disturb(ctx)]++
			c.pause(time.Duration(c.random.IntN(3000)) * time.Millisecond)
			c.keepAgent()
		}
		AddReportEntry("disturbances", done)

		c.endHogs(ctx)

		By("afterwards pods can be started") // what was reported before may be old
		c.apply(ctx, "late")
		Eventually(c.lacking(ctx, names), 2*launch.Patience).Should(BeEmpty())
		after, err := c.pods(ctx)
		Expect(err).NotTo(HaveOccurred())
		running, err := c.running(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, name := range names {
			Expect(after[name].UID).To(Equal(before[name].UID), name)
			Expect(running[name]).To(HaveLen(1), name)
			if c.mayRestart[name] {
				continue
			}
			story := func() string { return c.story(ctx, after[name], runningBefore[name]) }
			Expect(running[name]).To(Equal(runningBefore[name]), story)
			Expect(after[name].Status.ContainerStatuses[0]).To(HaveField("RestartCount", BeZero()), story)
			Expect(after[name].Status.ContainerStatuses[0].ContainerID).To(HaveSuffix("//"+running[name][0]), name)
		}
		By("with as many goroutines and as much memory as before")
		var nowGoroutines, nowMemory float64
		Eventually(func(g Gomega) {
			nowGoroutines, nowMemory, err = c.cost(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(nowGoroutines).To(BeNumerically("<=", goroutines*1.2+20))
			g.Expect(nowMemory).To(BeNumerically("<=", memory*1.5))
		}).Should(Succeed())
		AddReportEntry("goroutines and resident bytes before and after", fmt.Sprint(goroutines, nowGoroutines, memory, nowMemory))
		By("and the pods can be deleted")
		_, errOut, err := c.kubectl.Run(ctx, "", "delete", "pods", "--all", "--namespace=default", "--wait=false")
		Expect(err).NotTo(HaveOccurred(), errOut)
		Eventually(func() (map[string]string, error) { c.keepAgent(); return c.sandboxes(ctx) }, 2*launch.Patience).Should(BeEmpty())
		Eventually(func() ([]string, error) { return filepath.Glob(filepath.Join(c.disk, "pods", "*")) }).Should(BeEmpty())
		Eventually(c.mounts).Should(BeEmpty())
	}, SpecTimeout(time.Hour))
})
