package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/apifake"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

// machine is a machine with a runtime, on which agents run by themselves.
type machine struct {
	*testing.T
	*gomega.WithT
	dir     string
	runtime *runtimetest.Runtime
	// adjust changes the configuration of agents; nil changes nothing. overrides
	// replace parts of agents.
	adjust    func(*config.Flags, *config.Configuration)
	overrides overrides
	// gates changes the feature gates of agents; nil changes none.
	gates func(*config.Gates)
	// clock is the agents'; nil for the real one.
	clock clock.WithTickerAndDelayedExecution
	// api is the agents' API server; nil without one.
	api   *apifake.Server
	agent *Agent
	stop  func()
}

func newMachine(t *testing.T, o runtimetest.Options) *machine {
	t.Helper()
	t.Parallel()
	m := &machine{T: t, WithT: gomega.NewWithT(t), dir: t.TempDir()}
	m.SetDefaultEventuallyTimeout(3 * time.Minute)
	m.SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	// The path of a socket is short.
	sockets, err := os.MkdirTemp("", "svclet")
	m.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { os.RemoveAll(sockets) })
	o.Socket, o.Images = filepath.Join(sockets, "s"), []string{"app:1"}
	m.runtime, err = runtimetest.Start(o)
	m.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(m.runtime.Close)
	m.Expect(os.MkdirAll(m.manifests(), 0o755)).To(gomega.Succeed())
	t.Cleanup(func() {
		// An agent of root's makes its directory a mount.
		if mounted, err := mountinfo.Mounted(m.root()); err == nil && mounted {
			m.Expect(syscall.Unmount(m.root(), 0)).To(gomega.Succeed())
		}
	})
	return m
}

func (m *machine) root() string      { return filepath.Join(m.dir, "root") }
func (m *machine) manifests() string { return filepath.Join(m.dir, "manifests") }

// made returns an agent that does not run yet.
func (m *machine) made(ctx context.Context) *Agent {
	m.Helper()
	agent, err := m.attempt(ctx)
	m.Expect(err).NotTo(gomega.HaveOccurred())
	return agent
}

// attempt makes an agent, or returns why it cannot be made.
func (m *machine) attempt(ctx context.Context) (*Agent, error) {
	c := config.Default()
	c.EvictionHard = nil // the disk of the machine may be as full as it is
	c.ContainerRuntimeEndpoint = m.runtime.Endpoint()
	c.StaticPodPath = m.manifests()
	c.PodLogsDir = filepath.Join(m.dir, "logs")
	c.CgroupsPerQOS, c.EnableServer = ptr.To(false), ptr.To(false)
	flags := config.DefaultFlags()
	flags.RootDir, flags.CertDir, flags.HostnameOverride = m.root(), filepath.Join(m.dir, "pki"), "node"
	if m.adjust != nil {
		m.adjust(&flags, c)
	}
	o := Config{Flags: flags, Configuration: c, Version: "v1.36.0", LogLinksDir: filepath.Join(m.dir, "links"), Clock: m.clock}
	if m.gates != nil {
		m.gates(&o.Gates)
	}
	if m.api != nil {
		o.API = m.api.Config()
	}
	return newAgent(ctx, o, m.overrides)
}

// start starts an agent.
func (m *machine) start() {
	m.Helper()
	ctx, cancel := context.WithCancel(m.Context())
	m.agent = m.made(ctx)
	ended := make(chan error)
	go func() { ended <- m.agent.Run(ctx) }()
	stopped := false
	m.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			m.Expect(<-ended).To(gomega.Succeed())
		}
	}
	m.Cleanup(m.stop)
}

// write writes the manifest of a static pod with a container app, whose spec is
// extended by more.
func (m *machine) write(name, more string) {
	m.Helper()
	content := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: app, image: app:1%s}\n", name, more)
	m.Expect(os.WriteFile(filepath.Join(m.manifests(), name+".yaml"), []byte(content), 0o600)).To(gomega.Succeed())
}

// erase removes the manifest of a static pod.
func (m *machine) erase(name string) {
	m.Helper()
	m.Expect(os.Remove(filepath.Join(m.manifests(), name+".yaml"))).To(gomega.Succeed())
}

// pod returns the pod as the agent shows it, an empty pod if there is none.
func (m *machine) pod(name string) *corev1.Pod {
	p, found := m.agent.pods.Get("default", name+"-node")
	if !found {
		return &corev1.Pod{}
	}
	return p
}

func (m *machine) isReady(name string) func() bool {
	return func() bool {
		for _, c := range m.pod(name).Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}
}

// held makes requests of a method wait until the test calls release.
func (m *machine) held(method string) (release func()) {
	gate := make(chan struct{})
	m.runtime.Rule(method, runtimetest.Rule{Gate: gate})
	release = sync.OnceFunc(func() {
		m.runtime.RemoveRules(method)
		close(gate)
	})
	m.Cleanup(release)
	return release
}

// calls counts the requests of a method so far.
func (m *machine) calls(method string) func() int {
	return func() int { return m.runtime.Calls(method) }
}

func TestAPodOfAFileRunsUntilTheFileIsRemoved(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.start()
	m.write("a", "")
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	uid := m.pod("a").UID
	m.erase("a")
	m.Eventually(m.runtime.Pods).Should(gomega.BeEmpty())
	m.Eventually(func() []*corev1.Pod { return m.agent.pods.List() }).Should(gomega.BeEmpty())
	for _, left := range []string{filepath.Join(m.root(), "pods", string(uid)), filepath.Join(m.dir, "logs", "default_a-node_"+string(uid))} {
		m.Eventually(left).ShouldNot(gomega.BeADirectory())
	}
}

func TestARestartedAgentAdoptsTheRunningPods(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.start()
	m.write("a", "")
	m.write("b", "")
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	m.Eventually(m.isReady("b")).Should(gomega.BeTrue())
	a := m.runtime.Container(m.pod("a").UID, "app")
	m.stop()
	m.erase("b") // while no agent runs
	created := m.runtime.Calls("CreateContainer")

	m.start()
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	m.Eventually(m.runtime.Pods).Should(gomega.HaveLen(1))
	m.Expect(m.runtime.Container(m.pod("a").UID, "app")).To(gomega.Equal(a))
	m.Expect(m.runtime.Calls("CreateContainer")).To(gomega.Equal(created))
}

func TestAContainerThatEndsIsStartedAgain(t *testing.T) {
	for _, events := range []bool{true, false} {
		t.Run(fmt.Sprintf("events %t", events), func(t *testing.T) {
			m := newMachine(t, runtimetest.Options{Events: events})
			m.start()
			m.write("a", "")
			m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
			m.runtime.End(m.runtime.Container(m.pod("a").UID, "app"), runtimetest.End{Code: 3})
			m.Eventually(func() int32 {
				if all := m.pod("a").Status.ContainerStatuses; len(all) == 1 && all[0].State.Running != nil {
					return all[0].RestartCount
				}
				return 0
			}).Should(gomega.BeNumerically("==", 1))
			last := m.pod("a").Status.ContainerStatuses[0].LastTerminationState.Terminated
			m.Expect(last.ExitCode).To(gomega.BeNumerically("==", 3))
		})
	}
}

func TestPodsKeepRunningWhileTheRuntimeIsNotAvailable(t *testing.T) {
	m := newMachine(t, runtimetest.Options{Events: true})
	m.start()
	m.write("a", "")
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	a := m.runtime.Container(m.pod("a").UID, "app")
	m.runtime.Down()
	m.write("b", "") // cannot start meanwhile
	m.Expect(m.runtime.Up()).To(gomega.Succeed())
	m.Eventually(m.isReady("b")).Should(gomega.BeTrue())
	m.Expect(m.isReady("a")()).To(gomega.BeTrue())
	m.Expect(m.runtime.Container(m.pod("a").UID, "app")).To(gomega.Equal(a))
}

func TestAPodThatTheRuntimeNeverStartsDelaysNoOther(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.runtime.Rule("StartContainer", runtimetest.Rule{Hang: true, Times: 1})
	m.start()
	m.write("a", "")
	m.Eventually(func() int { return m.runtime.Calls("StartContainer") }).Should(gomega.Equal(1))
	m.write("b", "")
	m.Eventually(m.isReady("b")).Should(gomega.BeTrue())
	m.Expect(m.isReady("a")()).To(gomega.BeFalse())
}

func TestAFailedImagePullIsReportedAndRetried(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.runtime.FailPulls("other:1", fmt.Errorf("the registry is closed"))
	m.start()
	content := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: app, image: other:1}]}\n"
	m.Expect(os.WriteFile(filepath.Join(m.manifests(), "a.yaml"), []byte(content), 0o600)).To(gomega.Succeed())
	m.Eventually(func() string {
		if all := m.pod("a").Status.ContainerStatuses; len(all) == 1 && all[0].State.Waiting != nil {
			return all[0].State.Waiting.Reason + ": " + all[0].State.Waiting.Message
		}
		return ""
	}).Should(gomega.And(gomega.HavePrefix("ErrImagePull: "), gomega.ContainSubstring("the registry is closed")))
	m.runtime.FailPulls("other:1", nil)
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
}

func TestAnAgentThatCannotBeMadeLeavesItsPortFree(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	const address = "127.0.0.2" // at which no test beside this one may get the port
	free, err := net.Listen("tcp", address+":0")
	m.Expect(err).NotTo(gomega.HaveOccurred())
	m.Expect(free.Close()).To(gomega.Succeed())
	m.adjust = func(flags *config.Flags, c *config.Configuration) {
		flags.NodeIP = "nowhere"
		c.EnableServer, c.Address, c.ReadOnlyPort, c.HealthzPort = ptr.To(true), address, 0, ptr.To[int32](0)
		c.Port = int32(free.Addr().(*net.TCPAddr).Port)
	}
	_, err = m.attempt(t.Context())
	m.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("nowhere")))
	again, err := net.Listen("tcp", free.Addr().String())
	m.Expect(err).NotTo(gomega.HaveOccurred())
	m.Expect(again.Close()).To(gomega.Succeed())
}
