package node

import (
	"fmt"
	"net"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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
