package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/test/launch"
)

var _ = Describe("the agent's server", Ordered, ContinueOnFailure, func() {
	var namespace string
	BeforeAll(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		apply(ctx, namespace, `
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'echo first; echo second >&2; exec sleep 100000']
  - name: server
    image: localhost/svc/server:1
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
  - name: reader
    image: localhost/svc/busybox:1
    stdin: true
    command: [sh, -c, 'while read line; do echo "read $line"; done; exec sleep 100000']
`)
		Eventually(func(g Gomega) {
			var pod corev1.Pod
			g.Expect(client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "web"}, &pod)).To(Succeed())
			g.Expect(pod.Status.ContainerStatuses).To(HaveLen(3))
			g.Expect(pod.Status.ContainerStatuses).To(HaveEach(HaveField("Ready", BeTrue())))
		}).Should(Succeed())
	})

	// in runs kubectl in the pod's namespace, with an input.
	in := func(ctx context.Context, stdin string, args ...string) (stdout, stderr string, err error) {
		return kubectl.Run(ctx, stdin, append([]string{"--namespace=" + namespace}, args...)...)
	}

	It("reports the usage of the node, its pods and their containers to kubectl top", func(ctx SpecContext) {
		top := func(args ...string) []string {
			out, errOut, err := in(ctx, "", append(append([]string{"top"}, args...), "--no-headers")...)
			Expect(err).NotTo(HaveOccurred(), errOut)
			return strings.Split(strings.TrimSpace(out), "\n")
		}
		// CPU rates need two samples.
		Eventually(func(g Gomega) {
			out, errOut, err := in(ctx, "", "top", "node", "--no-headers")
			g.Expect(err).NotTo(HaveOccurred(), errOut)
			g.Expect(out).To(MatchRegexp(`^\S+ +\d+m +\d+% +[1-9]\d*Mi +\d+% *\n$`))
			out, errOut, err = in(ctx, "", "top", "pod", "web", "--containers", "--no-headers")
			g.Expect(err).NotTo(HaveOccurred(), errOut)
			g.Expect(strings.Split(strings.TrimSpace(out), "\n")).To(ConsistOf(
				MatchRegexp(`^web +main +\d+m +\d+Mi *$`), MatchRegexp(`^web +server +\d+m +[1-9]\d*Mi *$`), MatchRegexp(`^web +reader +\d+m +\d+Mi *$`),
			))
		}).Should(Succeed())
		Expect(top("pod", "-A")).To(ContainElement(MatchRegexp(`^` + namespace + ` +web +\d+m +[1-9]\d*Mi *$`)))
	})

	It("runs commands, with their input, output and exit code", func(ctx SpecContext) {
		out, errOut, err := in(ctx, "hello", "exec", "--stdin", "web", "--container=main", "--", "sh", "-c", "cat; echo oops >&2; exit 3")
		Expect(err).To(MatchError(ContainSubstring("exit status 3")), errOut)
		Expect(out).To(Equal("hello"))
		Expect(errOut).To(HavePrefix("oops\n"))

		By("however large the input is")
		large := strings.Repeat("0123456789abcdef", 256<<10)
		out, errOut, err = in(ctx, large, "exec", "--stdin", "web", "--container=main", "--", "wc", "-c")
		Expect(err).NotTo(HaveOccurred(), errOut)
		Expect(strings.TrimSpace(out)).To(Equal(fmt.Sprint(len(large))))

		By("and says once why one cannot be run")
		_, errOut, err = in(ctx, "", "exec", "web", "--container=main", "--", "/nothing")
		Expect(err).To(HaveOccurred())
		Expect(errOut).To(ContainSubstring("/nothing"))
		Expect(strings.Count(errOut, "error executing command in container")).To(BeNumerically("<=", 1), errOut)
	})

	It("attaches to a container that runs", func(ctx SpecContext) {
		ctx2, cancel := context.WithCancel(ctx)
		defer cancel()
		cmd, err := kubectl.Command(ctx2, "attach", "--stdin", "web", "--container=reader", "--namespace="+namespace)
		Expect(err).NotTo(HaveOccurred())
		stdin, err := cmd.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		stdout, err := cmd.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(cmd.Start()).To(Succeed())
		_, err = io.WriteString(stdin, "a line\n")
		Expect(err).NotTo(HaveOccurred())
		answer := make([]byte, len("read a line\n"))
		_, err = io.ReadFull(stdout, answer)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(answer)).To(Equal("read a line\n"))
		cancel()
		Expect(cmd.Wait()).NotTo(Succeed())
	})

	It("forwards ports", func(ctx SpecContext) {
		ctx2, cancel := context.WithCancel(ctx)
		defer cancel()
		cmd, err := kubectl.Command(ctx2, "port-forward", "web", ":8080", "--namespace="+namespace)
		Expect(err).NotTo(HaveOccurred())
		stdout, err := cmd.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(cmd.Start()).To(Succeed())
		first := make([]byte, 256)
		n, err := stdout.Read(first)
		Expect(err).NotTo(HaveOccurred())
		local := regexp.MustCompile(`127\.0\.0\.1:(\d+) -> 8080`).FindSubmatch(first[:n])
		Expect(local).NotTo(BeNil(), "kubectl says %q", first[:n])
		go func() { _, _ = io.Copy(io.Discard, stdout) }()
		for range 3 {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", string(local[1])), nil)
			Expect(err).NotTo(HaveOccurred())
			request.Close = true
			answer, err := http.DefaultClient.Do(request)
			Expect(err).NotTo(HaveOccurred())
			body, err := io.ReadAll(answer.Body)
			Expect(err).NotTo(HaveOccurred())
			Expect(answer.Body.Close()).To(Succeed())
			Expect(strings.TrimSpace(string(body))).To(Equal("web"))
		}
		cancel()
		Expect(cmd.Wait()).NotTo(Succeed())
	})

	It("copies files in both directions", func(ctx SpecContext) {
		there := filepath.Join(dir, "there")
		Expect(os.WriteFile(there, []byte(strings.Repeat("x", 1<<20)), 0o600)).To(Succeed())
		run(ctx, "cp", there, namespace+"/web:/tmp/file", "--container=main")
		run(ctx, "cp", namespace+"/web:/tmp/file", there+".back", "--container=main")
		back, err := os.ReadFile(there + ".back")
		Expect(err).NotTo(HaveOccurred())
		Expect(back).To(HaveLen(1 << 20))
	})

	It("shows logs", func(ctx SpecContext) {
		Eventually(func() string {
			return run(ctx, "logs", "web", "--container=main", "--namespace="+namespace)
		}).Should(Or(Equal("first\nsecond\n"), Equal("second\nfirst\n"))) // two streams
		Expect(run(ctx, "logs", "web", "--container=main", "--tail=1", "--timestamps", "--namespace="+namespace)).To(MatchRegexp(`^\d{4}-\S+Z (first|second)\n$`))
		_, errOut, err := in(ctx, "", "logs", "web", "--container=main", "--previous")
		Expect(err).To(HaveOccurred())
		Expect(errOut).To(ContainSubstring(`previous terminated container "main" in pod "web" not found`))
	})

	It("reports the usage of pods", func(ctx SpecContext) {
		var nodes corev1.NodeList
		Expect(client.List(ctx, &nodes)).To(Succeed())
		proxied := "/api/v1/nodes/" + nodes.Items[0].Name + "/proxy"
		ask := func(path string) string {
			code, body, err := launch.Get(ctx, rest.CopyConfig(node.Config), proxied+path)
			Expect(err).NotTo(HaveOccurred())
			Expect(code).To(Equal(http.StatusOK), body)
			return body
		}
		var summary statsapi.Summary
		Eventually(func() []statsapi.PodStats { // for a moment, a pod that ends hides the network of all
			summary = statsapi.Summary{}
			Expect(yaml.Unmarshal([]byte(ask("/stats/summary")), &summary)).To(Succeed())
			return summary.Pods
		}).Should(ContainElement(And(
			HaveField("PodRef.Namespace", namespace), HaveField("Containers", HaveLen(3)),
			HaveField("Memory.WorkingSetBytes", HaveValue(BeNumerically(">", 0))),
			HaveField("Network", HaveValue(HaveField("RxBytes", HaveValue(BeNumerically(">", 0))))),
		)))
		Expect(summary.Node.Memory.WorkingSetBytes).To(HaveValue(BeNumerically(">", 0)))
		Expect(summary.Node.Fs.CapacityBytes).To(HaveValue(BeNumerically(">", 0)))
		Expect(summary.Node.Runtime.ImageFs.CapacityBytes).To(HaveValue(BeNumerically(">", 0)))
		Expect(ask("/metrics/resource")).To(MatchRegexp(`container_memory_working_set_bytes\{container="server",namespace="` + namespace + `",pod="web"\} \d`))
		Expect(ask("/metrics/cadvisor")).To(ContainSubstring(`container_network_receive_bytes_total{`))
		Expect(ask("/metrics")).To(ContainSubstring("kubelet_runtime_operations_total{"))
		Expect(ask("/pods")).To(ContainSubstring(`"name":"web"`))
		Expect(ask("/runningpods/")).To(ContainSubstring(`"name":"web"`))
		Expect(ask("/healthz")).To(Equal("ok"))
		Expect(ask("/configz")).To(ContainSubstring(`"kubeletconfig"`))
	})

	It("changes the verbosity of logs, and asks the runtime for checkpoints", func(ctx SpecContext) {
		proxied := "/api/v1/nodes/" + nodeName() + "/proxy"
		for _, level := range []string{"1", "0"} {
			out, errOut, err := in(ctx, level, "replace", "--raw", proxied+"/debug/flags/v", "-f", "-")
			Expect(err).NotTo(HaveOccurred(), errOut)
			Expect(out).To(Equal("successfully set klog.logging.verbosity to " + level))
		}
		_, errOut, err := in(ctx, "loud", "replace", "--raw", proxied+"/debug/flags/v", "-f", "-")
		Expect(err).To(HaveOccurred())
		Expect(errOut).To(HavePrefix("Error from server (BadRequest)"))
		checkpoint := func() (string, error) {
			out, errOut, err := in(ctx, "", "create", "--raw", proxied+"/checkpoint/"+namespace+"/web/main", "-f", "-")
			return out + errOut, err
		}
		out, err := checkpoint()
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("Forbidden (user=kube-apiserver-kubelet-client, verb=create, resource=nodes, subresource(s)=[checkpoint])"))
		run(ctx, "create", "clusterrole", "checkpoints", "--verb=create", "--resource=nodes/checkpoint")
		DeferCleanup(func(ctx SpecContext) { run(ctx, "delete", "clusterrole,clusterrolebinding", "checkpoints") })
		run(ctx, "create", "clusterrolebinding", "checkpoints", "--clusterrole=checkpoints", "--user=kube-apiserver-kubelet-client")
		// The agent asks for permissions again after a while.
		Eventually(func() string {
			out, err = checkpoint()
			return out
		}).ShouldNot(ContainSubstring("Forbidden"))
		if err != nil { // containerd before 2.0, or without CRIU
			Expect(out).To(ContainSubstring("checkpointing of " + namespace + "/web/main failed ("))
			return
		}
		Expect(out).To(MatchRegexp(`^{"items":\[".*/checkpoints/checkpoint-web_` + namespace + `-main-.*\.tar"]}$`))
	})
})
