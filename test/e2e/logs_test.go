package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("logs", func() {
	var (
		k     *sandbox
		agent *fakeAgent
	)
	BeforeEach(func(ctx SpecContext) {
		k = newSandbox(ctx)
		agent = newFakeAgent(ctx)
		agent.HandleFunc("GET /containerLogs/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.URL) })
		agent.pod(ctx, k.Namespace, "web", "c")
	})

	It("come from the agent, to which the API server authenticates without its client's credentials", func() {
		Expect(k.run("logs", "web", "--tail=3", "--timestamps", "--since=1m", "--previous")).
			To(Equal("/containerLogs/" + k.Namespace + "/web/c?previous=true&sinceSeconds=60&tailLines=3&timestamps=true\n"))
		Expect(agent.last().TLS.PeerCertificates[0].Subject.CommonName).To(Equal("kube-apiserver-kubelet-client"))
		Expect(send(request{method: http.MethodGet, path: k.pathOf("web/log"), header: map[string]string{
			"X-Remote-User": "mallory", "X-Remote-Group": "system:masters", "X-Remote-Extra-Scopes": "all",
		}}).status).To(Equal(http.StatusOK))
		for name := range agent.last().Header {
			Expect(name).NotTo(Or(HavePrefix("X-Remote"), HavePrefix("Impersonate"), Equal("Authorization")))
		}
	})

	It("are followed line by line", func(ctx SpecContext) {
		more := make(chan string, 1)
		more <- "one"
		agent.HandleFunc("GET /containerLogs/{namespace}/slow/c", func(w http.ResponseWriter, r *http.Request) {
			for {
				select {
				case line, open := <-more:
					if !open {
						return
					}
					fmt.Fprintln(w, line)
					w.(http.Flusher).Flush()
				case <-r.Context().Done(): // the spec has failed
					return
				}
			}
		})
		agent.pod(ctx, k.Namespace, "slow", "c")
		stream, err := client.CoreV1().Pods(k.Namespace).GetLogs("slow", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
		Expect(err).NotTo(HaveOccurred())
		defer stream.Close()
		read := bufio.NewReader(stream)
		Expect(read.ReadString('\n')).To(Equal("one\n"))
		more <- "two"
		Expect(read.ReadString('\n')).To(Equal("two\n"))
		close(more)
		Expect(io.ReadAll(read)).To(BeEmpty())
	})

	DescribeTable("fail with the agent's error", func(ctx SpecContext, code int, text string, reason, message string) {
		agent.HandleFunc("GET /containerLogs/{namespace}/bad/c", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) })
		agent.pod(ctx, k.Namespace, "bad", "c")
		a := send(request{method: http.MethodGet, path: k.pathOf("bad/log")})
		Expect(a.status).To(Equal(code))
		status := a.asStatus()
		Expect(string(status.Reason)).To(Equal(reason))
		Expect(status.Message).To(ContainSubstring(message))
	},
		Entry("a container that does not exist", 404, "container not found", "NotFound", "the server could not find the requested resource ( pods/log bad)"),
		Entry("a container that waits", 400, `container "c" in pod "bad" is waiting to start: ContainerCreating`, "BadRequest", `container "c" in pod "bad" is waiting to start: ContainerCreating`),
		Entry("an agent that answers nonsense", 500, "oh no", "InternalError", "Internal error occurred: oh no"),
		Entry("an agent that does not authenticate the API server", 401, "Unauthorized", "Unauthorized", "the server has asked for the client to provide credentials ( pods/log bad)"),
		Entry("an agent that does not authorize the API server", 403, "Forbidden (user=kube-apiserver-kubelet-client, verb=get, resource=nodes, subresource=proxy)", "Forbidden", "Forbidden (user=kube-apiserver-kubelet-client"),
	)

	It("do not follow redirects", func(ctx SpecContext) {
		agent.Handle("GET /containerLogs/{namespace}/away/c", http.RedirectHandler("/containerLogs/x/y/z", http.StatusFound))
		agent.pod(ctx, k.Namespace, "away", "c")
		Expect(k.fails("", "logs", "away")).To(ContainSubstring("redirects forbidden"))
		Expect(agent.last().URL.Path).To(HaveSuffix("/away/c"))
	})

	It("of a pod without a node are empty", func(ctx SpecContext) {
		makePod(ctx, k.Namespace, "waiting", corev1.PodSpec{}, corev1.PodStatus{}, "c")
		Expect(k.run("logs", "waiting")).To(BeEmpty())
	})

	It("need the permission to read them", func() {
		a := send(request{method: http.MethodGet, path: k.pathOf("web/log"), anonymous: true, token: aliceToken})
		Expect(a.asStatus().Message).To(ContainSubstring(`cannot get resource "pods/log"`))
		Expect(agent.last()).To(BeNil())
	})

	It("with an invalid parameter are rejected", func() {
		Expect(k.fails("", "get", "--raw", k.pathOf("web/log?tailLines=-1"))).To(ContainSubstring("tailLines: Invalid value: -1"))
		Expect(k.fails("", "get", "--raw", k.pathOf("web/log?container=none"))).To(ContainSubstring("container none is not valid for pod web"))
		Expect(k.fails("", "get", "--raw", k.pathOf("web/log?tailLines=few"))).To(ContainSubstring("tailLines"))
	})
})

var _ = Describe("an agent", func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	It("with a certificate of another authority is rejected, unless the client skips the verification", func(ctx SpecContext) {
		agent := newFakeAgentWith(ctx, certificate(strangeAuthority()))
		agent.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "here I am") })
		agent.pod(ctx, k.Namespace, "web", "c")
		const why = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
		Expect(k.fails("", "logs", "web")).To(ContainSubstring(why))
		Expect(k.fails("", "exec", "web", "--", "true")).To(ContainSubstring(why))
		Expect(k.fails("", "get", "--raw", "/api/v1/nodes/"+agent.node+"/proxy/healthz")).To(ContainSubstring(why))
		Expect(agent.last()).To(BeNil())
		Expect(k.run("logs", "web", "--insecure-skip-tls-verify-backend")).To(Equal("here I am\n"))
	})

	It("that does not answer delays a request only until its timeout", func(ctx SpecContext) {
		where := silence()
		node := makeNode(ctx, where)
		makePod(ctx, k.Namespace, "web", corev1.PodSpec{NodeName: node}, corev1.PodStatus{Phase: corev1.PodRunning}, "c")
		for _, path := range []string{k.pathOf("web/log"), "/api/v1/nodes/" + node + "/proxy/healthz"} {
			a := send(request{method: http.MethodGet, path: path})
			Expect(a.status).To(BeNumerically(">=", 500), path)
			Expect(a.body).To(ContainSubstring(where.String()+" took the connection and has said nothing within 5s"), path)
		}
		Expect(k.fails("", "exec", "web", "--", "true")).To(ContainSubstring(" took the connection and has said nothing within 5s"))
	})

	It("that does not exist is named in the error", func(ctx SpecContext) {
		node := makeNode(ctx, netip.MustParseAddrPort("127.0.0.1:1")) // tcpmux, which no machine here serves
		makePod(ctx, k.Namespace, "web", corev1.PodSpec{NodeName: node}, corev1.PodStatus{Phase: corev1.PodRunning}, "c")
		Expect(k.fails("", "logs", "web")).To(ContainSubstring("dial tcp 127.0.0.1:1: connect: connection refused"))
		Expect(k.fails("", "exec", "web", "--", "true")).To(ContainSubstring("dial tcp 127.0.0.1:1: connect: connection refused"))
	})

	It("without an address is named in the error", func(ctx SpecContext) {
		agent := newFakeAgent(ctx)
		k.run("patch", "node", agent.node, "--subresource=status", "--type=merge", "-p", `{"status": {"addresses": null}}`)
		agent.pod(ctx, k.Namespace, "web", "c")
		Expect(k.fails("", "logs", "web")).To(ContainSubstring(`node "` + agent.node + `" has none of these addresses`))
	})
})

// pathOf is the path of a pod's subresource in the sandbox's namespace.
func (s *sandbox) pathOf(subresource string) string {
	return "/api/v1/namespaces/" + s.Namespace + "/pods/" + strings.TrimPrefix(subresource, "/")
}
