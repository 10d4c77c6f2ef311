package node

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("a service", func() {
	// answers returns the names of the pods that answer 30 requests of a pod to an address.
	answers := func(ctx SpecContext, s space, address string) func() []string {
		return func() []string {
			out := s.exec(ctx, "client", fmt.Sprintf("for i in $(seq 30); do wget -q -O - http://%s/ || echo failed; done | sort -u", address))
			return strings.Fields(out)
		}
	}

	It("connects pods and the node to its ready pods, by cluster IP, node port and load balancer", func(ctx SpecContext) {
		s := newSpace(ctx)
		nodePort := "30580"
		s.apply(ctx, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: `+nodePort+`}]}
---
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 8093, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: near}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: web}, ports: [{port: 8094, targetPort: 8080}]}
---
`+labelled(webServer("one", ""))+"\n---\n"+labelled(webServer("two", ""))+"\n---\n"+sleeper("client", ""))
		s.await(ctx, "one", beReady())
		two := s.await(ctx, "two", beReady())
		s.await(ctx, "client", beReady())
		ip := s.run(ctx, "get", "service", "web", "-o=jsonpath={.spec.clusterIP}")

		By("its cluster IP from a pod, balanced over both, and from the node")
		Eventually(answers(ctx, s, ip)).Should(Equal([]string{"one", "two"}))
		Eventually(func() (string, error) { return get(ctx, "http://"+ip+"/") }).Should(BeElementOf("one\n", "two\n"))
		By("its node port at the node's address, at the loopback address, and from a pod")
		for _, host := range []string{two.Status.HostIP, "127.0.0.1"} {
			Expect(get(ctx, "http://"+net.JoinHostPort(host, nodePort)+"/")).To(BeElementOf("one\n", "two\n"))
		}
		Expect(answers(ctx, s, net.JoinHostPort(two.Status.HostIP, nodePort))()).To(Equal([]string{"one", "two"}))
		By("the address of its load balancer, which is the node's")
		Eventually(func() string {
			return s.run(ctx, "get", "service", "balanced", "-o=jsonpath={.status.loadBalancer.ingress[*].ip}")
		}).Should(ContainSubstring(two.Status.HostIP))
		balanced := net.JoinHostPort(two.Status.HostIP, "8093")
		Eventually(func() (string, error) { return get(ctx, "http://"+balanced+"/") }).Should(BeElementOf("one\n", "two\n"))
		Eventually(answers(ctx, s, balanced)).Should(Equal([]string{"one", "two"}))
		By("the health check node port of a load balancer whose connections stay on the node")
		port := s.run(ctx, "get", "service", "near", "-o=jsonpath={.spec.healthCheckNodePort}")
		health := func() (string, error) { return get(ctx, "http://"+net.JoinHostPort(two.Status.HostIP, port)+"/") }
		Eventually(health).Should(And(ContainSubstring(`"localEndpoints":2`), ContainSubstring(`"serviceProxyHealthy":true`)))
		By("one pod less")
		s.run(ctx, "delete", "pod", "two")
		Eventually(answers(ctx, s, ip)).Should(Equal([]string{"one"}))
		By("no pod: connections are refused at once")
		s.run(ctx, "delete", "pod", "one")
		Eventually(func() string { return s.exec(ctx, "client", "wget -O - http://"+ip+"/ 2>&1 || true") }).Should(ContainSubstring("refused"))
		Eventually(func() error {
			_, err := health()
			return err
		}).Should(MatchError(ContainSubstring("503")))
	})

	It("sends a client's connections to the same pod with session affinity", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {sessionAffinity: ClientIP, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
`+labelled(webServer("one", ""))+"\n---\n"+labelled(webServer("two", ""))+"\n---\n"+sleeper("client", ""))
		for _, name := range []string{"one", "two", "client"} {
			s.await(ctx, name, beReady())
		}
		ip := s.run(ctx, "get", "service", "web", "-o=jsonpath={.spec.clusterIP}")
		Eventually(answers(ctx, s, ip)).Should(And(HaveLen(1), Not(ContainElement("failed"))))
	})

	It("answers at the addresses of every type, also to the pod itself, before and after kills of containerd and of svc up with its agent and API server", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 8095, targetPort: 8080}], externalIPs: [198.51.100.7]}
---
apiVersion: v1
kind: Service
metadata: {name: guarded}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 8096, targetPort: 8080}], loadBalancerSourceRanges: [198.51.100.0/24]}
---
apiVersion: v1
kind: Service
metadata: {name: peers}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: datagrams}
spec: {selector: {app: web}, ports: [{protocol: UDP, port: 8095, targetPort: 8080}]}
---
`+labelled(webServer("one", ""))+"\n---\n"+sleeper("client", "")+"\n---\n"+webServer("two", ""))
		one := s.await(ctx, "one", beReady())
		s.await(ctx, "client", beReady())
		s.await(ctx, "two", beReady())
		of := func(path string) string { return s.run(ctx, "get", "service", "web", "-o=jsonpath={."+path+"}") }
		Eventually(func() string { return of("status.loadBalancer.ingress[*].ip") }).Should(ContainSubstring(one.Status.HostIP))
		port := of("spec.ports[0].nodePort")
		clusterIP := net.JoinHostPort(of("spec.clusterIP"), "8095")
		datagrams := net.JoinHostPort(s.run(ctx, "get", "service", "datagrams", "-o=jsonpath={.spec.clusterIP}"), "8095")
		addresses := []string{clusterIP, net.JoinHostPort(one.Status.HostIP, port), net.JoinHostPort(one.Status.HostIP, "8095"), "198.51.100.7:8095", "peers:8080"}
		fetch := func(pod, address string) func() string {
			return func() string {
				// exec fails until the agent serves again.
				out, _ := s.try(ctx, "exec", pod, "--", "sh", "-c", "exec 2>/dev/null; timeout 2 wget -q -O - http://"+address+"/ || echo none")
				return out
			}
		}
		check := func() {
			GinkgoHelper()
			for _, address := range addresses {
				Eventually(fetch("client", address)).Should(Equal("one\n"), address)
			}
			for _, address := range append(addresses[:4:4], "127.0.0.1:"+port) {
				Eventually(func() (string, error) { return get(ctx, "http://"+address+"/") }).Should(Equal("one\n"), address)
			}
			By("the pod reaches itself through the service")
			Eventually(func() (string, error) {
				return s.try(ctx, "exec", "one", "--", "/server", "--ask=http://"+clusterIP+"/")
			}).Should(Equal("200 OK\n"))
			By("by datagrams, also the pod itself")
			for _, client := range []string{"one", "two"} {
				Eventually(func() (string, error) {
					return s.try(ctx, "exec", client, "--", "/server", "--ask=udp://"+datagrams)
				}).Should(Equal("one\n"), client)
			}
			By("not from outside of the source ranges")
			Expect(fetch("client", net.JoinHostPort(one.Status.HostIP, "8096"))()).To(Equal("none\n"))
		}
		Eventually(func() string {
			return s.run(ctx, "get", "service", "guarded", "-o=jsonpath={.status.loadBalancer.ingress[*].ip}")
		}).Should(ContainSubstring(one.Status.HostIP))
		Eventually(fetch("client", net.JoinHostPort(one.Status.HostIP, "8096"))).Should(Equal("none\n"))
		check()

		By("kill -9 of containerd")
		before := listener(node.Endpoint())
		Expect(syscall.Kill(before, syscall.SIGKILL)).To(Succeed())
		Eventually(func() int { return listener(node.Endpoint()) }).ShouldNot(Or(Equal(before), BeZero()))
		check()
		By("kill -9 of svc up")
		node.Kill()
		for _, address := range addresses[:4] { // the rules stay
			Expect(get(ctx, "http://"+address+"/")).To(Equal("one\n"), address)
		}
		Expect(node.Again(ctx)).To(Succeed())
		connect()
		check()

		By("a port that kubectl forwards")
		cmd := s.command(ctx, "port-forward", "service/web", ":8095")
		out, err := cmd.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(cmd.Start()).To(Succeed())
		DeferCleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		line, err := bufio.NewReader(out).ReadString('\n')
		Expect(err).NotTo(HaveOccurred())
		from, to, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "Forwarding from 127.0.0.1:")), " -> ")
		Expect(to).To(Equal("8080"), line)
		Expect(get(ctx, "http://127.0.0.1:"+from+"/")).To(Equal("one\n"))
	})

	It("has no address that answers with --service-proxy=false, and no name with --dns=false, while pods run", func(ctx SpecContext) {
		other, err := launch.UpNode(ctx, filepath.Join(newDir(), "data"), "--service-proxy=false", "--dns=false", "--pod-network=none", "--network-policy=false")
		DeferCleanup(func() { Expect(other.Remove()).To(Succeed()) })
		Expect(err).NotTo(HaveOccurred())
		for _, archive := range []string{"busybox.tar", "server.tar"} {
			out, err := exec.CommandContext(ctx, svc, "image", "import", "--data-dir="+other.DataDir, filepath.Join(dir, archive)).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(out))
		}
		k := launch.Kubectl{Kubeconfig: other.Kubeconfig, Home: newDir(), Namespace: "default"}
		try := func(args ...string) (string, error) {
			out, errOut, err := k.Run(ctx, "", args...)
			return out + errOut, err
		}
		Eventually(func() error { // after the service account has been created
			_, _, err := k.Run(ctx, labelled(webServer("web", ""))+"\n---\n"+sleeper("client", ""), "apply", "--filename=-")
			return err
		}).Should(Succeed())
		Expect(try("expose", "pod", "web", "--port=80", "--target-port=8080")).Error().NotTo(HaveOccurred())
		for _, pod := range []string{"web", "client"} {
			Expect(try("wait", "--for=condition=Ready", "pod/"+pod, "--timeout=3m")).Error().NotTo(HaveOccurred())
		}

		By("pods reach each other by their addresses")
		podIP, err := try("get", "pod", "web", "-o=jsonpath={.status.podIP}")
		Expect(err).NotTo(HaveOccurred())
		Expect(try("exec", "client", "--", "wget", "-q", "-O", "-", "http://"+podIP+":8080/")).To(Equal("web\n"))
		By("not by the service's")
		clusterIP, err := try("get", "service", "web", "-o=jsonpath={.spec.clusterIP}")
		Expect(err).NotTo(HaveOccurred())
		Expect(try("exec", "client", "--", "sh", "-c", "timeout 2 wget -q -O - http://"+clusterIP+"/ 2>/dev/null || echo none")).To(Equal("none\n"))
		By("no service of DNS: pods have the resolvers of the node")
		missing, err := try("get", "service", "kube-dns", "--namespace=kube-system")
		Expect(err).To(HaveOccurred())
		Expect(missing).To(ContainSubstring("NotFound"))
		Expect(try("exec", "client", "--", "cat", "/etc/resolv.conf")).NotTo(ContainSubstring("cluster.local"))
		By("no rules")
		tables, err := exec.CommandContext(ctx, "nft", "list", "tables").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(tables))
		Expect(string(tables)).NotTo(ContainSubstring(other.Bridge))
		By("nothing of that is wrong")
		Expect(exec.CommandContext(ctx, svc, "status", "--data-dir="+other.DataDir).CombinedOutput()).To(ContainSubstring("Nothing is wrong."))
	})

	It("serves the API server to pods at the address of the service kubernetes", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, sleeper("client", ""))
		s.await(ctx, "client", container("main", running()))
		// The server answers a request without TLS with a message.
		Eventually(func() string {
			return s.exec(ctx, "client", `printf 'GET /version HTTP/1.0\r\n\r\n' | nc $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT`)
		}).Should(ContainSubstring("Client sent an HTTP request to an HTTPS server"))
	})
})

// labelled returns a pod with the label app=web.
func labelled(manifest string) string {
	return strings.Replace(manifest, "metadata: {", "metadata: {labels: {app: web}, ", 1)
}
