package node

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// An agent of its own whose root directory is on a small disk, and whose pods have little
// memory: so that they exhaust the node, and not the machine.
var _ = Describe("under pressure, a node", Ordered, func() {
	var (
		machine *launch.Machine
		agent   *launch.Agent
		s       space
	)
	const podProcesses = 1200

	BeforeAll(func(ctx SpecContext) {
		root := smallDisk(ctx, 64<<20, 2048)
		machine = newMachine(ctx)
		program, err := launch.Svclet.Program()
		Expect(err).NotTo(HaveOccurred())
		agent, err = machine.NewAgent(launch.Svclet, program, "small")
		Expect(err).NotTo(HaveOccurred())
		for i, arg := range agent.Args {
			if strings.HasPrefix(arg, "--root-dir=") {
				agent.Args[i] = "--root-dir=" + root
			}
		}
		agent.Fields = littleMemory(400<<20, 100<<20)
		maps.Copy(agent.Fields, map[string]any{
			"evictionHard":         map[string]string{"nodefs.available": "30%", "nodefs.inodesFree": "30%", "memory.available": "100Mi", "pid.available": processesLeft(podProcesses / 2)},
			"volumeStatsAggPeriod": "1s",
			"podPidsLimit":         podProcesses,
		})
		cluster, err := node.Cluster()
		Expect(err).NotTo(HaveOccurred())
		Expect(agent.Configure(cluster)).To(Succeed())
		Expect(agent.Start()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			_, err := agent.Stop(launch.Patience) // first: it would register the node again
			Expect(err).NotTo(HaveOccurred())
			Expect(client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "small"}})).To(Succeed())
		})
		Eventually(small(ctx)).Should(conditionOf(corev1.NodeReady, corev1.ConditionTrue))
		s = newSpace(ctx)
		DeferCleanup(func(ctx SpecContext) { s.run(ctx, "delete", "pod", "--all", "--grace-period=0") })
		s.apply(ctx, onSmall("innocent", serverImage, "", "{requests: {memory: 100Mi}}"))
		s.apply(ctx, onSmall("guaranteed", busybox, "exec sleep 1000", "{limits: {cpu: 50m, memory: 20Mi}}"))
		s.await(ctx, "innocent", beReady())
		s.await(ctx, "guaranteed", And(beReady(), HaveField("Status.QOSClass", corev1.PodQOSGuaranteed)))
	})
	ReportAfterEach(func(report SpecReport) {
		if report.Failed() && agent != nil && agent.Process != nil {
			AddReportEntry("svclet printed", lastLines(agent.Output()))
		}
	})

	// evicted waits until a pod is evicted, with the node's condition and taint.
	evicted := func(ctx SpecContext, pod string, condition corev1.NodeConditionType, taint, resource string) {
		GinkgoHelper()
		Eventually(small(ctx)).Should(conditionOf(condition, corev1.ConditionTrue))
		Eventually(small(ctx)).Should(HaveField("Spec.Taints", ContainElement(HaveField("Key", taint))))
		p := s.await(ctx, pod, And(inPhase(corev1.PodFailed), HaveField("Status.Reason", "Evicted")))
		Expect(p.Status.Message).To(HavePrefix("The node was low on resource: " + resource + ". Threshold quantity: "))
		Expect(p).To(haveCondition(corev1.DisruptionTarget, corev1.ConditionTrue))
		Eventually(s.events(ctx, pod)).Should(ContainElement(HavePrefix("Evicted: The node was low on resource: " + resource)))
		Eventually(small(ctx)).Should(And(conditionOf(condition, corev1.ConditionFalse), HaveField("Spec.Taints", Not(ContainElement(HaveField("Key", taint))))))
		for _, other := range []string{"innocent", "guaranteed"} {
			Expect(s.await(ctx, other, beReady())).To(container("main", HaveField("RestartCount", BeZero())))
		}
	}

	It("evicts the pod that takes its memory", func(ctx SpecContext) {
		s.apply(ctx, onSmall("hog", serverImage, "", "{}"))
		p := s.await(ctx, "hog", beReady())
		url := "http://" + p.Status.PodIP + ":8080"
		Eventually(func() (string, error) { return get(ctx, url) }).Should(Equal("hog\n")) // it listens
		_ = tryPost(ctx, url+"/hog?mib=340")                                               // it may be evicted before it answers
		evicted(ctx, "hog", corev1.NodeMemoryPressure, corev1.TaintNodeMemoryPressure, "memory")
	})

	It("evicts the pod that fills its disk", func(ctx SpecContext) {
		s.apply(ctx, onSmall("filler", busybox, "head -c 40000000 /dev/zero > /scratch/big; exec sleep 1000", "{}"))
		evicted(ctx, "filler", corev1.NodeDiskPressure, corev1.TaintNodeDiskPressure, "ephemeral-storage")
	})

	It("evicts the pod that takes all inodes", func(ctx SpecContext) {
		s.apply(ctx, onSmall("inodes", busybox, "i=0; while [ $i -lt 3000 ]; do : > /scratch/$i; i=$((i+1)); done; exec sleep 1000", "{}"))
		evicted(ctx, "inodes", corev1.NodeDiskPressure, corev1.TaintNodeDiskPressure, "inodes")
	})

	It("evicts the pod that starts as many processes as it may", func(ctx SpecContext) {
		// The inner shell ends when it cannot fork.
		s.apply(ctx, onSmall("bomb", busybox, `sh -c "while sleep 1000 & do :; done"; exec sleep 1000`, "{}"))
		evicted(ctx, "bomb", corev1.NodePIDPressure, corev1.TaintNodePIDPressure, "pids")
	})
})

// littleMemory returns the settings of an agent whose pods have this much memory, in bytes, and
// are evicted when less than left of it is available.
func littleMemory(all, left int64) map[string]any {
	GinkgoHelper()
	var info unix.Sysinfo_t
	Expect(unix.Sysinfo(&info)).To(Succeed())
	return map[string]any{
		"evictionHard":                     map[string]string{"memory.available": fmt.Sprint(left)},
		"evictionPressureTransitionPeriod": "5s",
		"systemReserved":                   map[string]string{"memory": fmt.Sprint(int64(info.Totalram)*int64(info.Unit) - all)}, //nolint:gosec // no machine overflows int64
	}
}

// processesLeft returns the threshold of processes that is met when the machine runs this
// many more than now.
func processesLeft(more int) string {
	GinkgoHelper()
	read := func(file string) []string {
		data, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		return strings.Fields(string(data))
	}
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		Expect(err).NotTo(HaveOccurred())
		return n
	}
	_, running, _ := strings.Cut(read("/proc/loadavg")[3], "/")
	limit := min(number(read("/proc/sys/kernel/pid_max")[0]), number(read("/proc/sys/kernel/threads-max")[0]))
	return strconv.Itoa(limit - number(running) - more)
}

// onSmall is a pod on that node; without a command, its image's own runs.
func onSmall(name, image, command, resources string) string {
	if command != "" {
		command = fmt.Sprintf("command: [sh, -c, %q], ", command)
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: small
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: %q, imagePullPolicy: Never, %sresources: %s, volumeMounts: [{name: scratch, mountPath: /scratch}]}
  volumes: [{name: scratch, emptyDir: {}}]
---
`, name, image, command, resources)
}

// small returns the node.
func small(ctx context.Context) func() (*corev1.Node, error) {
	return func() (*corev1.Node, error) {
		n := &corev1.Node{}
		return n, client.Get(ctx, ctrlclient.ObjectKey{Name: "small"}, n)
	}
}

func conditionOf(kind corev1.NodeConditionType, status corev1.ConditionStatus) gomegatypes.GomegaMatcher {
	return HaveField("Status.Conditions", ContainElement(And(HaveField("Type", kind), HaveField("Status", status))))
}

// smallDisk mounts a file system of this size in bytes with few inodes, and returns its path.
func smallDisk(ctx context.Context, size int64, inodes int) string {
	GinkgoHelper()
	device, dir := loopDevice(ctx, size), newDir()
	out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-N", strconv.Itoa(inodes), device).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	Expect(unix.Mount(device, dir, "ext4", 0, "")).To(Succeed())
	DeferCleanup(func() {
		out, err := exec.Command("umount", "--recursive", "--lazy", dir).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
	})
	Expect(os.Chmod(dir, 0o755)).To(Succeed())
	return dir
}
