package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/image/load"
	"svc.dev/svc/svclet/image/pause"
	"svc.dev/svc/test/launch"
)

// These specs use their own containerd, since they stop it.
var _ = Describe("a containerd of the agent's own", Ordered, func() {
	var (
		config  containerd.Config
		runtime *containerd.Runtime
		cri     runtimeapi.RuntimeServiceClient
		pod     string // ID of its sandbox
		pid     int    // process of its container
	)

	BeforeAll(func(ctx SpecContext) {
		programs, err := containerd.Find(containerd.DefaultSearch())
		Expect(err).NotTo(HaveOccurred())
		base, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, base)
		// The path is too long for a socket.
		config = containerd.Config{
			Dir: filepath.Join(base, strings.Repeat("d", 100)), Programs: programs, SandboxImage: pause.Name,
			Bridge: node.Bridge + "r", PodCIDRs: []string{"198.18.77.0/24"},
		}
		DeferCleanup(func(ctx SpecContext) {
			_, err := containerd.Reset(ctx, config, containerd.Leavings{LogsDir: "/var/log/pods"})
			Expect(err).NotTo(HaveOccurred())
			Expect(launch.RemoveCgroup(config.Bridge)).To(Succeed())
		})
		runtime, err = containerd.Start(ctx, config)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { runtime.Close() })
		Expect(runtime.Warnings).To(BeEmpty())
		Expect(load.ImportPause(ctx, runtime.Endpoint)).To(Succeed())
		archive, err := os.Open(filepath.Join(dir, "busybox.tar"))
		Expect(err).NotTo(HaveOccurred())
		defer archive.Close()
		_, err = load.Import(ctx, load.Options{Endpoint: runtime.Endpoint}, archive)
		Expect(err).NotTo(HaveOccurred())
		conn, err := grpc.NewClient(runtime.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(conn.Close)
		cri = runtimeapi.NewRuntimeServiceClient(conn)
	})

	// lives checks that the pod's container is still the same process.
	lives := func(ctx context.Context) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			pods, err := cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods.Items).To(HaveLen(1))
			g.Expect(pods.Items[0].State).To(Equal(runtimeapi.PodSandboxState_SANDBOX_READY))
		}).Should(Succeed())
		Expect(syscall.Kill(pid, 0)).To(Succeed(), "the container's process %d", pid)
	}

	It("runs a pod on the sandbox image that is built in", func(ctx SpecContext) {
		var container string
		pod, container = runPod(ctx, cri, sandbox("first", config.Bridge))
		status, err := cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod})
		Expect(err).NotTo(HaveOccurred())
		Expect(status.Status.Network.Ip).To(HavePrefix("198.18.77."))
		Eventually(func() (*runtimeapi.ExecSyncResponse, error) {
			return cri.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: []string{"cat", "/pid"}})
		}).Should(HaveField("ExitCode", BeZero()))
		pid = processOf(container)
	})

	It("keeps running when the agent stops, and is adopted by the next agent", func(ctx SpecContext) {
		before := listener(runtime.Endpoint)
		runtime.Close()
		var err error
		runtime, err = containerd.Start(ctx, config)
		Expect(err).NotTo(HaveOccurred())
		Expect(listener(runtime.Endpoint)).To(Equal(before))
		lives(ctx)
	})

	It("is restarted when it exits, and its pods keep running", func(ctx SpecContext) {
		before := listener(runtime.Endpoint)
		Expect(syscall.Kill(before, syscall.SIGKILL)).To(Succeed())
		Eventually(func() int { return listener(runtime.Endpoint) }).ShouldNot(Or(Equal(before), BeZero()))
		lives(ctx)
	})

	It("is stopped and started while its pods keep running", func(ctx SpecContext) {
		Expect(runtime.Stop(ctx)).To(Succeed())
		Expect(listener(runtime.Endpoint)).To(BeZero())
		Expect(syscall.Kill(pid, 0)).To(Succeed())
		var err error
		runtime, err = containerd.Start(ctx, config)
		Expect(err).NotTo(HaveOccurred())
		lives(ctx)
	})

	It("is stopped when its socket was removed, before another one is started", func(ctx SpecContext) {
		before := listener(runtime.Endpoint)
		runtime.Close()
		Expect(os.Remove(strings.TrimPrefix(runtime.Endpoint, "unix://"))).To(Succeed())
		var err error
		runtime, err = containerd.Start(ctx, config)
		Expect(err).NotTo(HaveOccurred())
		// This suite is the parent of the process, which is now a zombie: its entry exists.
		Expect(os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", before))).To(BeEmpty())
		lives(ctx)
	})

	It("is replaced when it was started with another configuration", func(ctx SpecContext) {
		before := listener(runtime.Endpoint)
		runtime.Close()
		other := config
		other.RegistryDir = filepath.Join(config.Dir, "registries")
		var err error
		runtime, err = containerd.Start(ctx, other)
		Expect(err).NotTo(HaveOccurred())
		Expect(listener(runtime.Endpoint)).NotTo(Equal(before))
		lives(ctx)
	})

	It("gives new pods addresses of the node's podCIDR", func(ctx SpecContext) {
		_, err := runtime.SetPodCIDRs(ctx, []string{"198.18.78.0/24"})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			id, err := cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox("second", config.Bridge)})
			g.Expect(err).NotTo(HaveOccurred())
			defer removePod(ctx, cri, id.PodSandboxId)
			status, err := cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id.PodSandboxId})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(status.Status.Network.Ip).To(HavePrefix("198.18.78."))
		}).Should(Succeed())
	})

	It("leaves nothing behind after a reset, even if it was killed before", func(ctx SpecContext) {
		runtime.Close()
		Expect(syscall.Kill(listener(runtime.Endpoint), syscall.SIGKILL)).To(Succeed())
		pods, err := containerd.Reset(ctx, config, containerd.Leavings{LogsDir: "/var/log/pods"})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(Equal(1))
		Expect(syscall.Kill(pid, 0)).To(MatchError(syscall.ESRCH))
		Expect(listener(runtime.Endpoint)).To(BeZero())
		_, err = net.InterfaceByName(config.Bridge)
		Expect(err).To(HaveOccurred())
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		Expect(err).NotTo(HaveOccurred())
		Expect(string(mounts)).NotTo(ContainSubstring(config.Dir))
		Expect(string(mounts)).NotTo(ContainSubstring(strings.TrimPrefix(filepath.Dir(runtime.Endpoint), "unix://")))
		rules, err := exec.CommandContext(ctx, config.Programs.IPTables, "--table=nat", "--list-rules").Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(string(rules)).NotTo(ContainSubstring(config.Bridge))
		again, err := containerd.Reset(ctx, config, containerd.Leavings{LogsDir: "/var/log/pods"})
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(BeZero())
	})
})

// sandbox returns the configuration of a sandbox below a cgroup.
func sandbox(name, cgroup string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name + "-of-the-suite"},
		Hostname: name,
		Linux:    &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/" + cgroup + "/pod" + name + "-of-the-suite"},
	}
}

// runPod runs a pod with one container, and returns their IDs.
func runPod(ctx context.Context, cri runtimeapi.RuntimeServiceClient, config *runtimeapi.PodSandboxConfig) (pod, container string) {
	GinkgoHelper()
	sandboxed, err := cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	Expect(err).NotTo(HaveOccurred())
	created, err := cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxed.PodSandboxId, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Image:    &runtimeapi.ImageSpec{Image: busybox},
		Command:  []string{"sh", "-c", "echo $$ > /pid; exec sleep 100000"},
	}})
	Expect(err).NotTo(HaveOccurred())
	_, err = cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.ContainerId})
	Expect(err).NotTo(HaveOccurred())
	return sandboxed.PodSandboxId, created.ContainerId
}

func removePod(ctx context.Context, cri runtimeapi.RuntimeServiceClient, id string) {
	GinkgoHelper()
	_, err := cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	Expect(err).NotTo(HaveOccurred())
	_, err = cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	Expect(err).NotTo(HaveOccurred())
}

// processOf returns the process of a container, whose cgroup is named by its ID.
func processOf(container string) int {
	GinkgoHelper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(content), container) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			Expect(err).NotTo(HaveOccurred())
			return pid
		}
	}
	Fail(fmt.Sprintf("no process is in the container %s", container))
	return 0
}

// listener returns the process that serves an endpoint, or 0.
func listener(endpoint string) int {
	GinkgoHelper()
	conn, err := net.Dial("unix", strings.TrimPrefix(endpoint, "unix://"))
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	Expect(err).NotTo(HaveOccurred())
	var peer *unix.Ucred
	Expect(raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})).To(Succeed())
	Expect(err).NotTo(HaveOccurred())
	return int(peer.Pid)
}
