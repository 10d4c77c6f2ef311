package node

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("a node with addresses of both IP families", func() {
	It("connects pods and itself by either, through services, with policies and names", func(ctx SpecContext) {
		ranges, err := launch.FreeCIDR()
		Expect(err).NotTo(HaveOccurred())
		private := fmt.Sprintf("fd%02x:%x:%x", rand.N(256), rand.N(1<<16), rand.N(1<<16)) // RFC 4193
		other, err := launch.UpNode(ctx, filepath.Join(newDir(), "data"), "--allocate-node-cidrs", "--cluster-cidr="+ranges+","+private+":1::/56", "--node-cidr-mask-size-ipv4=26",
			"--service-cluster-ip-range=10.0.0.0/24,"+private+":96::/112")
		DeferCleanup(func() { Expect(other.Remove()).To(Succeed()) })
		Expect(err).NotTo(HaveOccurred())
		for _, archive := range []string{"busybox.tar", "server.tar"} {
			out, err := exec.CommandContext(ctx, svc, "image", "import", "--data-dir="+other.DataDir, filepath.Join(dir, archive)).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(out))
		}
		k := launch.Kubectl{Kubeconfig: other.Kubeconfig, Home: newDir(), Namespace: "default"}
		feed := func(stdin string, args ...string) string {
			GinkgoHelper()
			out, errOut, err := k.Run(ctx, stdin, args...)
			Expect(err).NotTo(HaveOccurred(), errOut)
			return out
		}
		both := func(manifest string) string {
			return strings.Replace(manifest, "args: [", `args: ["--peer=[::]:80", "--peer=[::]:81", `, 1)
		}
		Eventually(func() error { // after the service account has been created
			_, _, err := k.Run(ctx, both(protocolPeer("a", ""))+"\n---\n"+both(protocolPeer("b", ""))+"\n---\n"+sleeper("client", "")+`
---
apiVersion: v1
kind: Service
metadata: {name: both}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {pod: a}
  ports: [{name: tcp, port: 8000, targetPort: 80}, {name: udp, port: 8000, targetPort: 80, protocol: UDP}, {name: sctp, port: 8000, targetPort: 80, protocol: SCTP}]
---
apiVersion: v1
kind: Service
metadata: {name: six}
spec: {ipFamilies: [IPv6], selector: {pod: a}, ports: [{port: 80}]}
`, "apply", "--filename=-")
			return err
		}).Should(Succeed())
		feed("", "wait", "--for=condition=Ready", "pod/a", "pod/b", "pod/client", "--timeout=3m")
		podIPs := strings.Fields(feed("", "get", "pod", "a", "-o=jsonpath={.status.podIPs[*].ip}"))
		Expect(podIPs).To(HaveExactElements(Not(ContainSubstring(":")), ContainSubstring(":")))
		var all []string
		for _, address := range podIPs {
			for _, protocol := range []string{"tcp", "udp", "sctp"} {
				all = append(all, protocol+"://"+net.JoinHostPort(address, "80"))
			}
		}
		clusterIPs := strings.Fields(feed("", "get", "service", "both", "-o=jsonpath={.spec.clusterIPs[*]}"))
		for _, address := range clusterIPs {
			for _, protocol := range []string{"tcp", "udp", "sctp"} {
				all = append(all, protocol+"://"+net.JoinHostPort(address, "8000"))
			}
		}
		six := "tcp://" + net.JoinHostPort(feed("", "get", "service", "six", "-o=jsonpath={.spec.clusterIP}"), "80")
		all = append(all, six)
		reached := func(pod string) func() []string {
			return func() []string {
				words := []string{"exec", pod, "--", "/server"}
				for _, address := range all {
					words = append(words, "--reach="+address)
				}
				return strings.Fields(feed("", words...))
			}
		}

		By("from another pod, and from the pod itself")
		for _, pod := range []string{"b", "a"} {
			Eventually(reached(pod)).Should(ConsistOf(all), pod)
		}
		By("from the node, also by its node port at the loopback address")
		port := feed("", "get", "service", "both", "-o=jsonpath={.spec.ports[0].nodePort}")
		for _, address := range []string{strings.TrimPrefix(six, "tcp://"), "127.0.0.1:" + port} {
			Eventually(func() error {
				conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
				if err != nil {
					return err
				}
				return conn.Close()
			}).Should(Succeed(), address)
		}
		By("by names")
		for i, kind := range []string{"a", "aaaa"} {
			Eventually(func() string {
				out, _, _ := k.Run(ctx, "", "exec", "client", "--", "nslookup", "-type="+kind, "both.default.svc.cluster.local")
				return out
			}).Should(ContainSubstring(clusterIPs[i]))
		}
		By("a policy that admits one family")
		feed(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: six}
spec: {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{ipBlock: {cidr: "::/0"}}]}]}
`, "apply", "--filename=-")
		var ofSix []string
		for _, address := range all {
			if strings.Contains(address, "[") {
				ofSix = append(ofSix, address)
			}
		}
		Eventually(reached("b")).Should(ConsistOf(ofSix))
	})
})

// protocolPeer returns a pod of a node that serves at two ports of each protocol, of which one
// has a name, and HTTP at port 8080.
func protocolPeer(name, node string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {pod: %[1]s}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/server:1
    args: ["--peer=0.0.0.0:80", "--peer=0.0.0.0:81"]
    ports:
    - {name: web, containerPort: 80}
    - {name: name, containerPort: 81, protocol: UDP}
    - {name: call, containerPort: 80, protocol: SCTP}
    readinessProbe: {tcpSocket: {port: 81}, periodSeconds: 1}
`, name, node)
}
