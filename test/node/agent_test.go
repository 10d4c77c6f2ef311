package node

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// These specs stop processes, so they use their own: an API server, a containerd,
// and an agent between the two.
var _ = Describe("svclet as a process of its own", Ordered, ContinueOnFailure, func() {
	var (
		server  *launch.Server
		port    string
		cluster launch.Cluster
		machine *launch.Machine
		agent   *launch.Agent
		s       space
	)

	// here makes the helpers of the suite use this cluster.
	here := func() {
		GinkgoHelper()
		var err error
		client, err = clientOf(server.Config)
		Expect(err).NotTo(HaveOccurred())
		kubectl = launch.Kubectl{Kubeconfig: server.Kubeconfig, Home: machine.Dir}
	}
	serve := func(ctx context.Context) {
		GinkgoHelper()
		var err error
		server, err = launch.UpAt(ctx, filepath.Join(machine.Dir, "server"), port)
		Expect(err).NotTo(HaveOccurred())
		here()
	}

	BeforeAll(func(ctx SpecContext) {
		suiteClient, suiteKubectl := client, kubectl
		DeferCleanup(func() { client, kubectl = suiteClient, suiteKubectl })
		machine = newMachine(ctx)
		port = freePort()
		serve(ctx)
		DeferCleanup(func() {
			_, err := server.Stop(launch.Patience)
			Expect(err).NotTo(HaveOccurred())
		})
		var err error
		cluster, err = server.Cluster()
		Expect(err).NotTo(HaveOccurred())
		program, err := launch.Svclet.Program()
		Expect(err).NotTo(HaveOccurred())
		agent, err = machine.NewAgent(launch.Svclet, program, "second")
		Expect(err).NotTo(HaveOccurred())
		agent.Fields = map[string]any{"nodeStatusUpdateFrequency": "1s"}
		Expect(agent.Configure(cluster)).To(Succeed())
		Expect(agent.Start()).To(Succeed())
		DeferCleanup(func() {
			_, err := agent.Stop(launch.Patience)
			Expect(err).NotTo(HaveOccurred())
		})
		Eventually(func() (*corev1.Node, error) {
			n := &corev1.Node{}
			err := client.Get(ctx, ctrlclient.ObjectKey{Name: "second"}, n)
			return n, err
		}).Should(HaveField("Status.Conditions", ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue)))))
		s = newSpace(ctx)
	})
	ReportAfterEach(func(report SpecReport) {
		if report.Failed() && agent != nil && agent.Process != nil {
			AddReportEntry("svclet printed", lastLines(agent.Output()))
		}
	})

	// tell sends a request to a pod's server.
	tell := func(ctx SpecContext, p *corev1.Pod, what string) {
		GinkgoHelper()
		_ = tryPost(ctx, "http://"+p.Status.PodIP+":8080/"+what) // a server that exits may not answer
	}

	It("runs static pods from files, and shows them in the API", func(ctx SpecContext) {
		file := filepath.Join(agent.Manifests, "static.yaml")
		write := func(content string) {
			GinkgoHelper()
			Expect(os.WriteFile(file+".new", []byte(content), 0o600)).To(Succeed())
			Expect(os.Rename(file+".new", file)).To(Succeed())
		}
		in := space{"default"}
		write(sleeper("static", ""))
		p := in.await(ctx, "static-second", beReady())
		Expect(p.Annotations).To(HaveKey("kubernetes.io/config.mirror"))
		Expect(in.exec(ctx, "static-second", "hostname")).To(Equal("static-second\n"))
		id := containerID(p, "main")

		By("even if a client deletes them there")
		in.run(ctx, "delete", "pod", "static-second", "--grace-period=0", "--force")
		again := in.await(ctx, "static-second", And(beReady(), HaveField("UID", Not(Equal(p.UID)))))
		Expect(containerID(again, "main")).To(Equal(id))

		By("half a manifest changes nothing")
		whole := strings.Replace(sleeper("static", ""), "spec: {", "spec: {hostname: other, ", 1)
		write(whole[:len(whole)/2])
		Eventually(agent.Output).Should(ContainSubstring(file))
		Expect(containerID(in.await(ctx, "static-second", beReady()), "main")).To(Equal(id))

		By("and again when they change")
		write(whole)
		p = in.await(ctx, "static-second", And(beReady(), HaveField("Spec.Hostname", "other")))
		Expect(containerID(p, "main")).NotTo(Equal(id))
		Expect(in.exec(ctx, "static-second", "hostname")).To(Equal("other\n"))

		Expect(os.Remove(file)).To(Succeed())
		Eventually(func() error { _, err := in.get(ctx, "static-second"); return err }).Should(MatchError(ContainSubstring("not found")))
	})

	It("resumes its pods after it was killed", func(ctx SpecContext) {
		s.apply(ctx, strings.Join([]string{webServer("keeps", ""), webServer("crashes", ""), webServer("leaves", "")}, "\n---\n"))
		keeps, crashes := s.await(ctx, "keeps", beReady()), s.await(ctx, "crashes", beReady())
		leaves := s.await(ctx, "leaves", beReady())
		agent.Kill()
		tell(ctx, crashes, "exit?code=7")
		s.run(ctx, "delete", "pod", "leaves", "--wait=false")
		Expect(get(ctx, "http://"+leaves.Status.PodIP+":8080/")).To(Equal("leaves\n"))
		Expect(agent.Start()).To(Succeed())
		s.await(ctx, "crashes", And(beReady(), container("main", And(restarted(1), terminatedBefore("Error", 7)))))
		Eventually(func() error { _, err := s.get(ctx, "leaves"); return err }).Should(MatchError(ContainSubstring("not found")))
		after := s.await(ctx, "keeps", beReady())
		Expect(containerID(after, "main")).To(Equal(containerID(keeps, "main")))
		Expect(after).To(container("main", HaveField("RestartCount", BeZero())))
		Expect(s.run(ctx, "logs", "keeps")).To(Equal("serving at :8080\n"))
	})

	It("stops on request, and its pods keep running", func(ctx SpecContext) {
		before := s.await(ctx, "keeps", beReady())
		Expect(agent.Stop(launch.Patience)).To(BeZero())
		Expect(get(ctx, "http://"+before.Status.PodIP+":8080/")).To(Equal("keeps\n"))
		Expect(agent.Start()).To(Succeed())
		Eventually(func() (string, error) {
			return s.try(ctx, "exec", "keeps", "--", "/server", "--ask=http://127.0.0.1:8080/ready")
		}).Should(Equal("200 OK\n"))
		Expect(containerID(s.await(ctx, "keeps", beReady()), "main")).To(Equal(containerID(before, "main")))
	})

	It("resumes its pods after containerd was killed and restarted", func(ctx SpecContext) {
		before := s.await(ctx, "keeps", beReady())
		crashes := s.await(ctx, "crashes", beReady())
		pid := listener(machine.Endpoint())
		Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		tell(ctx, crashes, "exit?code=8")
		Expect(get(ctx, "http://"+before.Status.PodIP+":8080/")).To(Equal("keeps\n"))
		Eventually(func() int { return listener(machine.Endpoint()) }).ShouldNot(Or(BeZero(), Equal(pid)))
		s.await(ctx, "crashes", container("main", And(running(), restarted(2))))
		Expect(containerID(s.await(ctx, "keeps", beReady()), "main")).To(Equal(containerID(before, "main")))
		s.apply(ctx, webServer("new", ""))
		s.await(ctx, "new", beReady())
	})

	It("runs its pods while the API server is unavailable, and reports their statuses in order afterwards", func(ctx SpecContext) {
		s.apply(ctx, strings.Join([]string{webServer("fails", "restartPolicy: Never"), webServer("restarts", ""), webServer("unready", "")}, "\n---\n"))
		keeps := s.await(ctx, "keeps", beReady())
		fails, restarts, unready := s.await(ctx, "fails", beReady()), s.await(ctx, "restarts", beReady()), s.await(ctx, "unready", beReady())
		server.Kill()
		tell(ctx, fails, "exit?code=5")
		tell(ctx, restarts, "exit?code=6")
		tell(ctx, unready, "ready?is=false")
		Eventually(func() error { _, err := get(ctx, "http://"+restarts.Status.PodIP+":8080/"); return err }).Should(Succeed())
		tell(ctx, restarts, "exit?code=4")
		Eventually(func() error { _, err := get(ctx, "http://"+restarts.Status.PodIP+":8080/"); return err }).Should(HaveOccurred())
		serve(ctx)
		var seen []corev1.Pod
		watched := watchPod(ctx, s, "restarts", &seen)
		s.await(ctx, "fails", And(inPhase(corev1.PodFailed), container("main", terminated("Error", 5))))
		s.await(ctx, "unready", And(beUnready(), container("main", And(running(), HaveField("RestartCount", BeZero())))))
		s.await(ctx, "restarts", And(beReady(), container("main", And(running(), restarted(2), terminatedBefore("Error", 4)))))
		Expect(containerID(s.await(ctx, "keeps", beReady()), "main")).To(Equal(containerID(keeps, "main")))
		watched()
		Expect(slices.IsSortedFunc(seen, func(a, b corev1.Pod) int {
			return int(a.Status.ContainerStatuses[0].RestartCount - b.Status.ContainerStatuses[0].RestartCount)
		})).To(BeTrue(), "%v", seen)

		By("and takes new pods, and ends old ones")
		s.run(ctx, "delete", "pod", "keeps", "unready")
		s.apply(ctx, webServer("later", ""))
		s.await(ctx, "later", beReady())
	})

	It("does not serve an expired certificate, and loads a new one without a restart", func(ctx SpecContext) {
		Expect(cluster.Authority.ServerUntil(machine.Dir, "serving", time.Now().Add(-time.Hour), "second")).To(Succeed())
		Eventually(func() string { out, _ := s.try(ctx, "logs", "later"); return out }).Should(ContainSubstring("certificate has expired"))
		s.await(ctx, "later", beReady())
		names := []string{"second", "127.0.0.1", s.await(ctx, "later", beReady()).Status.HostIP}
		Expect(cluster.Authority.Server(machine.Dir, "serving", "system:node:second", names...)).To(Succeed())
		Eventually(func() (string, error) { return s.try(ctx, "logs", "later") }).Should(Equal("serving at :8080\n"))
	})

	It("renews the tokens of pods before they expire", func(ctx SpecContext) {
		Expect(agent.Stop(launch.Patience)).To(BeZero())
		const life = 20 * time.Second // renewed at the age of 6 to 16 s
		through := cluster
		through.Server = shortTokens(server, cluster, "system:node:second", life)
		Expect(agent.Configure(through)).To(Succeed())
		Expect(agent.Start()).To(Succeed())
		s.apply(ctx, sleeper("tokens", ""))
		s.await(ctx, "tokens", beReady())
		mounted := func() string { return s.exec(ctx, "tokens", "cat "+accountDir+"/token") }
		user, first := "system:serviceaccount:"+s.name+":default", mounted()
		Expect(userOf(ctx, server, first)).To(Equal(user))
		Eventually(func(g Gomega) {
			now := mounted()
			if _, err := userOf(ctx, server, now); err != nil {
				Expect(mounted()).NotTo(Equal(now), "the token in the pod is valid at any time: %v", err)
			}
			_, err := userOf(ctx, server, first)
			g.Expect(err).To(MatchError(apierrors.IsUnauthorized, "the first token has expired"))
		}).WithPolling(time.Second).Should(Succeed())
		Expect(userOf(ctx, server, mounted())).To(Equal(user))
	})
})

func containerID(p *corev1.Pod, name string) string {
	GinkgoHelper()
	c, err := containerOf(p, name)
	Expect(err).NotTo(HaveOccurred())
	Expect(c.ContainerID).NotTo(BeEmpty())
	return c.ContainerID
}

// watchPod collects the events of a watch of a pod from now on, until the returned
// function is called.
func watchPod(ctx context.Context, s space, name string, seen *[]corev1.Pod) func() {
	GinkgoHelper()
	w, err := client.Watch(ctx, &corev1.PodList{}, ctrlclient.InNamespace(s.name), ctrlclient.MatchingFields{"metadata.name": name})
	Expect(err).NotTo(HaveOccurred())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			if p, ok := event.Object.(*corev1.Pod); ok {
				*seen = append(*seen, *p)
			}
		}
	}()
	return func() { w.Stop(); <-done }
}

// newMachine returns a new containerd with the suite's images.
func newMachine(ctx context.Context) *launch.Machine {
	GinkgoHelper()
	return newMachineIn(ctx, "")
}

func newMachineIn(ctx context.Context, parent string) *launch.Machine {
	GinkgoHelper()
	m, err := launch.NewMachineIn(ctx, parent)
	DeferCleanup(func() { Expect(m.Remove()).To(Succeed()) })
	Expect(err).NotTo(HaveOccurred())
	Expect(m.Import(ctx, images...)).To(Succeed())
	return m
}
