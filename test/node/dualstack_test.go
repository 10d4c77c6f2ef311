package node

import (
	"context"
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
		d := newDualStack(ctx)
		d.apply(ctx)
		all, clusterIPs, six := d.addresses(ctx)
		reached := func(pod string) func() []string {
			return func() []string {
				words := []string{"exec", pod, "--", "/server"}
				for _, address := range all {
					words = append(words, "--reach="+address)
				}
				return strings.Fields(d.feed(ctx, "", words...))
			}
		}

		By("from another pod, and from the pod itself")
		for _, pod := range []string{"b", "a"} {
			Eventually(reached(pod)).Should(ConsistOf(all), pod)
		}
		By("from the node, also by its node port at the loopback address")
		port := d.feed(ctx, "", "get", "service", "both", "-o=jsonpath={.spec.ports[0].nodePort}")
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
				out, _, _ := d.Run(ctx, "", "exec", "client", "--", "nslookup", "-type="+kind, "both.default.svc.cluster.local")
				return out
			}).Should(ContainSubstring(clusterIPs[i]))
		}
		By("a policy that admits one family")
		d.feed(ctx, `
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

// dualStack is kubectl of a cluster with addresses of both IP families.
type dualStack struct{ launch.Kubectl }

// newDualStack starts the cluster, with a node that has the images of its pods. It ends after
// the spec.
func newDualStack(ctx SpecContext) dualStack {
	GinkgoHelper()
	ranges, err := launch.FreeCIDR()
	Expect(err).NotTo(HaveOccurred())
	private := fmt.Sprintf("fd%02x:%x:%x", rand.N(256), rand.N(1<<16), rand.N(1<<16)) // RFC 4193
	other, err := launch.UpNode(ctx, filepath.Join(newDir(), "data"), "--allocate-node-cidrs", "--cluster-cidr="+ranges+","+private+":1::/56", "--node-cidr-mask-size-ipv4=26",
		"--service-cluster-ip-range=10.0.0.0/24,"+private+":9600::/112")
	DeferCleanup(func() { Expect(other.Remove()).To(Succeed()) })
	Expect(err).NotTo(HaveOccurred())
	for _, archive := range []string{"busybox.tar", "server.tar"} {
		out, err := exec.CommandContext(ctx, svc, "image", "import", "--data-dir="+other.DataDir, filepath.Join(dir, archive)).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
	}
	return dualStack{launch.Kubectl{Kubeconfig: other.Kubeconfig, Home: newDir(), Namespace: "default"}}
}

// feed runs kubectl with a standard input, and returns what it prints.
func (d dualStack) feed(ctx context.Context, stdin string, args ...string) string {
	GinkgoHelper()
	out, errOut, err := d.Run(ctx, stdin, args...)
	Expect(err).NotTo(HaveOccurred(), errOut)
	return out
}

// apply makes the pods a and b, which serve at both families, the pod client, and the services
// both and six of a.
func (d dualStack) apply(ctx context.Context) {
	GinkgoHelper()
	both := func(manifest string) string {
		return strings.Replace(manifest, "args: [", `args: ["--peer=[::]:80", "--peer=[::]:81", `, 1)
	}
	Eventually(func() error { // after the service account has been created
		_, _, err := d.Run(ctx, both(protocolPeer("a", ""))+"\n---\n"+both(protocolPeer("b", ""))+"\n---\n"+sleeper("client", "")+`
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
	d.feed(ctx, "", "wait", "--for=condition=Ready", "pod/a", "pod/b", "pod/client", "--timeout=3m")
}

// addresses returns the addresses at which the pod a serves, itself and through services, the
// cluster IPs of the service both, and the address of the service six.
func (d dualStack) addresses(ctx context.Context) (all, clusterIPs []string, six string) {
	GinkgoHelper()
	podIPs := strings.Fields(d.feed(ctx, "", "get", "pod", "a", "-o=jsonpath={.status.podIPs[*].ip}"))
	Expect(podIPs).To(HaveExactElements(Not(ContainSubstring(":")), ContainSubstring(":")))
	clusterIPs = strings.Fields(d.feed(ctx, "", "get", "service", "both", "-o=jsonpath={.spec.clusterIPs[*]}"))
	for port, addresses := range map[string][]string{"80": podIPs, "8000": clusterIPs} {
		for _, address := range addresses {
			for _, protocol := range []string{"tcp", "udp", "sctp"} {
				all = append(all, protocol+"://"+net.JoinHostPort(address, port))
			}
		}
	}
	six = "tcp://" + net.JoinHostPort(d.feed(ctx, "", "get", "service", "six", "-o=jsonpath={.spec.clusterIP}"), "80")
	return append(all, six), clusterIPs, six
}

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
