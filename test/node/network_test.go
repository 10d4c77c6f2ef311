package node

import (
	"fmt"
	"net"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("the network", func() {
	It("connects pod to pod, node to pod, and pod to node", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, webServer("web", "")+"\n---\n"+sleeper("client", "")+"\n---\n"+webServer("onnode", "hostNetwork: true"))
		web := s.await(ctx, "web", beReady())
		s.await(ctx, "client", beReady())
		Expect(s.exec(ctx, "client", "wget -q -O - http://"+web.Status.PodIP+":8080/")).To(Equal("web\n"))
		Expect(get(ctx, "http://"+web.Status.PodIP+":8080/")).To(Equal("web\n"))
		Expect(web.Status.PodIPs).To(ConsistOf(corev1.PodIP{IP: web.Status.PodIP}))
		_, cidr, err := net.ParseCIDR(node.CIDR)
		Expect(err).NotTo(HaveOccurred())
		Expect(cidr.Contains(net.ParseIP(web.Status.PodIP)) || strings.HasPrefix(web.Status.PodIP, "10.")).To(BeTrue())

		onNode := s.await(ctx, "onnode", container("main", running()))
		Expect(onNode.Status.PodIP).To(Equal(onNode.Status.HostIP))
	})

	It("forwards a host port to a pod", func(ctx SpecContext) {
		s := newSpace(ctx)
		port := freePort()
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: exposed}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/server:1
    ports: [{containerPort: 8080, hostPort: `+port+`}]
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
`)
		p := s.await(ctx, "exposed", beReady())
		url := "http://" + net.JoinHostPort(p.Status.HostIP, port)
		Expect(get(ctx, url)).To(Equal("exposed\n"))
		s.run(ctx, "delete", "pod", "exposed")
		Eventually(func() error { _, err := get(ctx, url); return err }).Should(HaveOccurred())
	})

	It("writes /etc/hosts and /etc/resolv.conf as the pod specifies", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, strings.Join([]string{
			printer("named", "hostname: first, subdomain: house, setHostnameAsFQDN: false, hostAliases: [{ip: 192.0.2.1, hostnames: [one.example, two.example]}]",
				"hostname; cat /etc/hosts"),
			printer("configured", "dnsPolicy: None, dnsConfig: {nameservers: [192.0.2.53], searches: [a.example, b.example], options: [{name: ndots, value: '3'}, {name: rotate}]}",
				"cat /etc/resolv.conf"),
			printer("default", "dnsPolicy: Default", "cat /etc/resolv.conf"),
			printer("onnode", "hostNetwork: true, hostAliases: [{ip: 192.0.2.1, hostnames: [one.example]}]", "hostname; cat /etc/hosts"),
		}, "\n---\n"))
		printed := func(pod string) string {
			s.await(ctx, pod, inPhase(corev1.PodSucceeded))
			return s.run(ctx, "logs", pod)
		}
		named := printed("named")
		p, err := s.get(ctx, "named")
		Expect(err).NotTo(HaveOccurred())
		Expect(named).To(And(HavePrefix("first\n"), ContainSubstring("\n192.0.2.1\tone.example\ttwo.example\n"), ContainSubstring("127.0.0.1\tlocalhost\n"),
			MatchRegexp(`\n10\.\d+\.\d+\.\d+\tfirst\.house\.`+s.name+`\.svc\.\S*\tfirst\n`)), "of the pod at %s", p.Status.PodIP)
		Expect(printed("configured")).To(Equal("search a.example b.example\nnameserver 192.0.2.53\noptions ndots:3 rotate\n"))
		resolv, err := os.ReadFile("/etc/resolv.conf")
		Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(string(resolv)) {
			if strings.HasPrefix(line, "nameserver") {
				Expect(printed("default")).To(ContainSubstring(strings.TrimSpace(line)))
			}
		}
		host, err := os.Hostname()
		Expect(err).NotTo(HaveOccurred())
		Expect(printed("onnode")).To(And(HavePrefix(host+"\n"), ContainSubstring("\n192.0.2.1\tone.example\n")))
	})
})

// printer returns a pod that runs a shell command to completion.
func printer(name, spec, line string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {%s, restartPolicy: Never, containers: [{name: main, image: "localhost/svc/busybox:1", command: [sh, -c, %q]}]}`, name, spec, line)
}

// webServer returns a pod with the test server.
func webServer(name, spec string) string {
	if spec != "" {
		spec += ", "
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {%s terminationGracePeriodSeconds: 0, containers: [{name: main, image: "localhost/svc/server:1",
  readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}}]}`, name, spec)
}
