package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/test/launch"
)

var _ = Describe("svclet without an API server", Ordered, ContinueOnFailure, func() {
	var (
		machine   *launch.Machine
		agent     *launch.Process
		manifests string
		readOnly  string       // its port
		requests  atomic.Int32 // for the URL of manifests
		answer    atomic.Value // its handler: func(http.ResponseWriter, *http.Request)
	)
	start := func() {
		GinkgoHelper()
		program, err := launch.Svclet.Program()
		Expect(err).NotTo(HaveOccurred())
		agent, err = launch.Start(nil, program, "--config="+filepath.Join(machine.Dir, "svclet.yaml"), "--hostname-override=alone",
			"--root-dir="+filepath.Join(machine.Dir, "agent"), "--cert-dir="+filepath.Join(machine.Dir, "certificates"))
		Expect(err).NotTo(HaveOccurred())
	}

	// pod returns a pod from the agent's API, or nil if it does not exist.
	pod := func(ctx context.Context, name string) func() (*corev1.Pod, error) {
		return func() (*corev1.Pod, error) {
			body, err := get(ctx, "http://127.0.0.1:"+readOnly+"/pods")
			if err != nil {
				return nil, err
			}
			var list corev1.PodList
			if err := json.Unmarshal([]byte(body), &list); err != nil {
				return nil, fmt.Errorf("%w: %s", err, body)
			}
			for i := range list.Items {
				if list.Items[i].Name == name+"-alone" {
					return &list.Items[i], nil
				}
			}
			return nil, nil
		}
	}
	await := func(ctx context.Context, name string, matcher gomegatypes.GomegaMatcher) *corev1.Pod {
		GinkgoHelper()
		var p *corev1.Pod
		Eventually(func() (err error) { p, err = pod(ctx, name)(); return err }).Should(Succeed())
		Eventually(func() (*corev1.Pod, error) { var err error; p, err = pod(ctx, name)(); return p, err }).Should(And(Not(BeNil()), matcher))
		return p
	}
	write := func(file, content string) {
		GinkgoHelper()
		Expect(os.WriteFile(filepath.Join(manifests, file), []byte(content), 0o600)).To(Succeed())
	}
	// serves sets the response of the URL, and waits until it was requested.
	serves := func(f func(w http.ResponseWriter, r *http.Request)) {
		GinkgoHelper()
		answer.Store(f)
		requests.Store(0)
		Eventually(requests.Load).Should(BeNumerically(">=", 2))
	}
	text := func(content string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(content)) }
	}

	BeforeAll(func(ctx SpecContext) {
		machine = newMachine(ctx)
		manifests = filepath.Join(machine.Dir, "manifests")
		Expect(os.Mkdir(manifests, 0o700)).To(Succeed())
		readOnly = freePort()
		answer.Store(text(webServer("remote", "")))
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			answer.Load().(func(http.ResponseWriter, *http.Request))(w, r)
		}))
		DeferCleanup(web.Close)
		Expect(os.WriteFile(filepath.Join(machine.Dir, "svclet.yaml"), []byte(`
apiVersion: svclet.config.k8s.io/v1beta1
kind: SvcletConfiguration
containerRuntimeEndpoint: `+machine.Endpoint()+`
cgroupRoot: `+machine.CgroupRoot()+`
podLogsDir: `+filepath.Join(machine.Dir, "logs")+`
staticPodPath: manifests
staticPodURL: `+web.URL+`
fileCheckFrequency: 1s
httpCheckFrequency: 1s
evictionHard: {memory.available: 0%}  # the disk of the machine is as full as it is
imageGCHighThresholdPercent: 100
podPidsLimit: 200
memoryManagerPolicy: Static
systemReserved: {memory: 100Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]
readOnlyPort: `+readOnly+`
port: `+freePort()+`
healthzPort: 0
`), 0o600)).To(Succeed())
		start()
		DeferCleanup(func() {
			_, err := agent.Stop(launch.Patience)
			Expect(err).NotTo(HaveOccurred())
		})
	})
	ReportAfterEach(func(report SpecReport) {
		if report.Failed() && agent != nil {
			AddReportEntry("svclet printed", lastLines(agent.Output()))
		}
	})

	It("runs the pods of files and of a URL", func(ctx SpecContext) {
		write("web.yaml", webServer("web", ""))
		write("job.json", `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job"}, "spec": {"restartPolicy": "Never",
			"initContainers": [{"name": "first", "image": "`+busybox+`", "command": ["true"]}],
			"containers": [{"name": "main", "image": "`+busybox+`", "command": ["sh", "-c", "exit 3"]}]}}`)
		p := await(ctx, "web", beReady())
		Expect(get(ctx, "http://"+p.Status.PodIP+":8080/")).To(Equal("web-alone\n"))
		await(ctx, "job", And(inPhase(corev1.PodFailed), container("main", terminated("Error", 3)), container("first", terminated("Completed", 0))))
		await(ctx, "remote", beReady())

		By("starts again what ends")
		_ = tryPost(ctx, "http://"+p.Status.PodIP+":8080/exit?code=1")
		await(ctx, "web", And(beReady(), container("main", restarted(1))))

		By("and runs them as they are when they change")
		write("web.yaml", webServer("web", "hostname: changed"))
		changed := await(ctx, "web", And(beReady(), HaveField("Spec.Hostname", "changed")))
		Expect(get(ctx, "http://"+changed.Status.PodIP+":8080/")).To(Equal("changed\n"))
		Expect(os.Remove(filepath.Join(manifests, "job.json"))).To(Succeed())
		Eventually(pod(ctx, "job")).Should(BeNil())
	})

	It("bounds a fork bomb, which harms no other pod", func(ctx SpecContext) {
		before := await(ctx, "web", beReady())
		write("bomb.yaml", printer("bomb", "terminationGracePeriodSeconds: 0", "while true; do sleep 1000 & done; echo unreachable"))
		bomb := await(ctx, "bomb", Or(container("main", running()), inPhase(corev1.PodFailed)))
		log := func() (string, error) {
			files, err := filepath.Glob(filepath.Join(machine.Dir, "logs", "*_bomb-alone_*", "main", "0.log"))
			if err != nil || len(files) == 0 {
				return "", err
			}
			content, err := os.ReadFile(files[0])
			return string(content), err
		}
		Eventually(log).Should(MatchRegexp("can't fork|Resource temporarily unavailable"))
		await(ctx, "bomb", inPhase(corev1.PodFailed))
		Expect(get(ctx, "http://"+before.Status.PodIP+":8080/")).To(Equal("changed\n"))
		Expect(containerID(await(ctx, "web", beReady()), "main")).To(Equal(containerID(before, "main")))
		Expect(os.Remove(filepath.Join(manifests, "bomb.yaml"))).To(Succeed())
		Eventually(pod(ctx, "bomb")).Should(BeNil())
		Eventually(func() ([]string, error) {
			return filepath.Glob("/sys/fs/cgroup/*" + machine.CgroupRoot() + "/kubepods/*/pod" + string(bomb.UID))
		}).Should(BeEmpty())
	})

	It("restarts all containers of a pod by a rule of one, in the same sandbox", func(ctx SpecContext) {
		write("whole.json", `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "whole"}, "spec": {"restartPolicy": "Never",
			"initContainers": [{"name": "first", "image": "`+busybox+`", "command": ["sh", "-c", "echo >> /data/runs"], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
			"containers": [{"name": "main", "image": "`+busybox+`", "command": ["sh", "-c", "until [ -e /data/exit ]; do sleep 0.1; done; rm /data/exit; exit 42"],
				"volumeMounts": [{"name": "data", "mountPath": "/data"}], "restartPolicy": "Never",
				"restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]},
				{"name": "other", "image": "`+busybox+`", "command": ["sleep", "1000"]}],
			"volumes": [{"name": "data", "emptyDir": {}}]}}`)
		before := await(ctx, "whole", beReady())
		data := filepath.Join(machine.Dir, "agent", "pods", string(before.UID), "volumes", "kubernetes.io~empty-dir", "data")
		Expect(os.WriteFile(filepath.Join(data, "exit"), nil, 0o600)).To(Succeed())
		again := And(restarted(1), terminatedBefore("RestartingAllContainers", 137))
		after := await(ctx, "whole", And(beReady(), container("first", again), container("main", again), container("other", again),
			haveCondition(corev1.AllContainersRestarting, corev1.ConditionFalse)))
		Expect(after.Status.PodIP).To(Equal(before.Status.PodIP))
		Expect(os.ReadFile(filepath.Join(data, "runs"))).To(HaveLen(2), "runs of the init container")
		Expect(os.Remove(filepath.Join(manifests, "whole.json"))).To(Succeed())
		Eventually(pod(ctx, "whole")).Should(BeNil())
	})

	It("gives guaranteed pods memory of NUMA nodes", func(ctx SpecContext) {
		write("bound.yaml", strings.Replace(webServer("bound", ""), "image: ", "resources: {limits: {cpu: 100m, memory: 64Mi}}, image: ", 1))
		p := await(ctx, "bound", beReady())
		state, err := os.ReadFile(filepath.Join(machine.Dir, "agent", "memory_manager_state"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(state)).To(MatchRegexp(`"%s":\{"main":\{"nodes":\[\d+],"amounts":\{"memory":67108864}}}`, p.UID))
		if _, err := os.Stat("/sys/fs/cgroup/cpuset"); err == nil { // cgroup v1
			_, id, _ := strings.Cut(containerID(p, "main"), "://")
			nodes, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuset", machine.CgroupRoot(), "kubepods", "pod"+string(p.UID), id, "cpuset.mems"))
			Expect(err).NotTo(HaveOccurred())
			Expect(string(state)).To(ContainSubstring("[" + strings.TrimSpace(string(nodes)) + "]"))
		}
	})

	It("keeps all pods when files are invalid, and names the files", func(ctx SpecContext) {
		before := await(ctx, "web", beReady())
		for file, content := range map[string]string{
			"half.yaml":    webServer("half", "")[:80],
			"service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {}\n",
			"version.yaml": strings.Replace(webServer("later", ""), "apiVersion: v1", "apiVersion: v7", 1),
			"invalid.yaml": webServer("Invalid_Name", ""),
			"nothing.yaml": "",
			"binary.yaml":  string([]byte{0, 1, 2, 0xff, 0xfe}),
			"large.yaml":   "# " + strings.Repeat("x", 20<<20),
			".hidden.yaml": webServer("hidden", ""),
		} {
			write(file, content)
		}
		Expect(syscall.Mkfifo(filepath.Join(manifests, "fifo.yaml"), 0o600)).To(Succeed())
		Expect(os.Symlink("/dev/zero", filepath.Join(manifests, "zero.yaml"))).To(Succeed())
		Expect(os.Symlink("/nowhere", filepath.Join(manifests, "dangling.yaml"))).To(Succeed())
		Expect(os.Mkdir(filepath.Join(manifests, "directory.yaml"), 0o700)).To(Succeed())
		for _, file := range []string{"half", "service", "version", "invalid", "large", "fifo", "zero", "dangling"} {
			Eventually(agent.Output).Should(ContainSubstring("/" + file + ".yaml"))
		}
		write("fine.yaml", webServer("fine", ""))
		await(ctx, "fine", beReady())
		Expect(pod(ctx, "hidden")()).To(BeNil())
		after := await(ctx, "web", beReady())
		Expect(containerID(after, "main")).To(Equal(containerID(before, "main")))
	})

	It("keeps all pods when the URL's content is invalid", func(ctx SpecContext) {
		before := await(ctx, "remote", beReady())
		ended := make(chan struct{})
		defer close(ended)
		for _, f := range []func(http.ResponseWriter, *http.Request){
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
			text("<html>Welcome!</html>"), text("{"),
			text("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {}\n"),
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) },
			func(w http.ResponseWriter, r *http.Request) { // endless
				for line := []byte("# " + strings.Repeat("x", 1<<16) + "\n"); r.Context().Err() == nil; {
					if _, err := w.Write(line); err != nil {
						return
					}
				}
			},
		} {
			serves(f)
		}
		Expect(containerID(await(ctx, "remote", beReady()), "main")).To(Equal(containerID(before, "main")))
		By("while it does not answer files are read all the same")
		answer.Store(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		})
		write("meanwhile.yaml", webServer("meanwhile", ""))
		await(ctx, "meanwhile", beReady())
	})

	It("terminates the pods of a URL that lists none any more", func(ctx SpecContext) {
		serves(text(webServer("remote", "hostname: back")))
		await(ctx, "remote", And(beReady(), HaveField("Spec.Hostname", "back")))
		serves(text(""))
		Eventually(pod(ctx, "remote")).Should(BeNil())
	})

	It("resumes its pods after it was killed", func(ctx SpecContext) {
		before := await(ctx, "fine", beReady())
		agent.Kill()
		start()
		after := await(ctx, "fine", beReady())
		Expect(containerID(after, "main")).To(Equal(containerID(before, "main")))
	})

	It("is reset without a join: its pods, and their logs, too", func(ctx SpecContext) {
		await(ctx, "fine", beReady())
		Expect(agent.Stop(launch.Patience)).To(BeZero())
		const foreign = "others"
		logs := filepath.Join(machine.Dir, "logs")
		Expect(os.Mkdir(filepath.Join(logs, foreign), 0o700)).To(Succeed())
		program, err := launch.Svclet.Program()
		Expect(err).NotTo(HaveOccurred())
		root := filepath.Join(machine.Dir, "agent")
		out, err := exec.CommandContext(ctx, program, "reset", "--root-dir="+root, "--config-dir="+newDir()).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Expect(string(out)).To(MatchRegexp(`^svclet and its pods \([1-9]\d*\) have been removed; the container runtime at ` + machine.Endpoint() + ` keeps running\n$`))
		Expect(root).NotTo(BeADirectory())
		entries, err := os.ReadDir(logs)
		Expect(err).NotTo(HaveOccurred())
		Expect(entries).To(ConsistOf(HaveField("Name()", foreign)))
		Expect(filepath.Glob("/sys/fs/cgroup/*" + machine.CgroupRoot() + "/kubepods")).To(BeEmpty())
	})
})
