package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/test/launch"
)

// peers are pods of some namespaces that serve at some ports each, by their names.
type peers struct {
	spaces map[string]space
	pods   map[string]*corev1.Pod // by name of space and name, such as "x/a"
	ports  []port
}

// port is a port of a protocol, such as "udp".
type port struct{ protocol, number string }

// newPeers starts the pods a, b and c in the namespaces x, y and z, on nodes by their names.
func newPeers(ctx context.Context, nodes map[string]string) peers {
	GinkgoHelper()
	p := peers{spaces: map[string]space{}, pods: map[string]*corev1.Pod{}}
	for _, protocol := range []string{"tcp", "udp", "sctp"} {
		p.ports = append(p.ports, port{protocol, "80"}, port{protocol, "81"})
	}
	for _, in := range []string{"x", "y", "z"} {
		s := newSpace(ctx)
		p.spaces[in] = s
		p.label(ctx, in, "team", in)
		s.apply(ctx, protocolPeer("a", nodes["a"])+"\n---\n"+protocolPeer("b", nodes["b"])+"\n---\n"+protocolPeer("c", nodes["c"]))
	}
	for in, s := range p.spaces {
		for _, name := range []string{"a", "b", "c"} {
			p.pods[in+"/"+name] = s.await(ctx, name, beReady())
		}
	}
	return p
}

// peer returns a pod that serves at two ports, of which one has the name web.
func peer(name string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {pod: %[1]s}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'mkdir /www; echo %[1]s > /www/index.html; httpd -h /www -p 80; httpd -h /www -p 81; exec sleep 1000']
    ports: [{name: web, containerPort: 80}, {containerPort: 81}]
    readinessProbe: {tcpSocket: {port: 81}, periodSeconds: 1}
`, name)
}

// label sets a label of a namespace.
func (p peers) label(ctx context.Context, in, key, value string) {
	GinkgoHelper()
	run(ctx, "label", "--overwrite", "namespace", p.spaces[in].name, key+"="+value)
}

// connection is one that a pod may open to a port of another, or of itself.
type connection struct {
	from, to string
	port     port
}

// address is where a connection leads, as "/server --reach" takes it.
func (p peers) address(c connection) string {
	return c.port.protocol + "://" + net.JoinHostPort(p.pods[c.to].Status.PodIP, c.port.number)
}

// open returns which of the connections pods can open. Each pod tries all of its own at
// the same time.
func (p peers) open(ctx context.Context, connections []connection) map[connection]bool {
	var mu sync.Mutex
	opened := map[connection]bool{}
	of := map[string][]connection{}
	for _, c := range connections {
		of[c.from] = append(of[c.from], c)
	}
	var trying sync.WaitGroup
	for from, own := range of {
		trying.Go(func() {
			defer GinkgoRecover()
			in, name, _ := strings.Cut(from, "/")
			words := []string{"exec", name, "--", "/server"}
			for _, c := range own {
				words = append(words, "--reach="+p.address(c))
			}
			reached := strings.Fields(p.spaces[in].run(ctx, words...))
			mu.Lock()
			defer mu.Unlock()
			for _, c := range own {
				opened[c] = slices.Contains(reached, p.address(c))
			}
		})
	}
	trying.Wait()
	return opened
}

// expect waits until those connections are open that the condition allows, and no others; a
// pod always reaches itself. Those that are not yet as they should be are tried again, which
// are few on a machine that is too busy to open all of them at once.
func (p peers) expect(ctx context.Context, allowed func(from, to string, at port) bool) {
	GinkgoHelper()
	var wrong []connection
	for from := range p.pods {
		for to := range p.pods {
			for _, at := range p.ports {
				wrong = append(wrong, connection{from, to, at})
			}
		}
	}
	Eventually(func() []connection {
		opened := p.open(ctx, wrong)
		wrong = slices.DeleteFunc(wrong, func(c connection) bool {
			return opened[c] == (c.from == c.to || allowed(c.from, c.to, c.port))
		})
		return wrong
	}).Should(BeEmpty())
}

// policy applies a policy to the pods of a namespace.
func (p peers) policy(ctx context.Context, in, name, spec string) {
	GinkgoHelper()
	p.spaces[in].apply(ctx, fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s}\nspec: %s\n", name, spec))
}

var _ = Describe("network policies", func() {
	It("filter the connections between pods, of each protocol, also of different machines", func(ctx SpecContext) {
		const other = "svcpolicies"
		address := otherMachine(ctx, other)
		m := newJoining(other, other)
		m.join(ctx, "--node-ip="+address)
		m.approve(ctx)
		m.importImage(ctx, images[1])
		p := newPeers(ctx, map[string]string{"a": nodeName(), "b": nodeName(), "c": other})
		isIn := func(pod, space string) bool { return strings.HasPrefix(pod, space+"/") }
		web, name, call := port{"tcp", "80"}, port{"udp", "81"}, port{"sctp", "80"}

		By("none: every connection is open")
		p.expect(ctx, func(string, string, port) bool { return true })

		By("default deny of one namespace, in both directions; its node reaches its pods")
		p.policy(ctx, "x", "deny", "{podSelector: {}, policyTypes: [Ingress, Egress]}")
		p.expect(ctx, func(from, to string, _ port) bool { return !isIn(from, "x") && !isIn(to, "x") })
		Expect(get(ctx, "http://"+net.JoinHostPort(p.pods["x/a"].Status.PodIP, "8080")+"/")).To(Equal("a\n"))
		p.spaces["x"].apply(ctx, sleeper("client", "nodeName: "+nodeName()))
		p.spaces["x"].await(ctx, "client", beReady())
		Expect(p.spaces["x"].exec(ctx, "client", "nslookup kubernetes.default.svc.cluster.local 2>&1 || true")).To(ContainSubstring("Name:"))

		By("ingress by the labels of namespace and pod and by the port of each protocol, egress by names of ports")
		p.policy(ctx, "x", "in", "{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: z}}, podSelector: {matchExpressions: [{key: pod, operator: In, values: [b, c]}]}}], ports: [{port: 81}, {protocol: UDP, port: 80}, {protocol: SCTP}]}]}")
		p.policy(ctx, "x", "out", "{podSelector: {matchExpressions: [{key: pod, operator: In, values: [b, c]}]}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {team: z}}}], ports: [{port: web}, {protocol: UDP, port: name}, {protocol: SCTP, port: call}]}]}")
		inward := []port{{"tcp", "81"}, {"udp", "80"}, {"sctp", "80"}, {"sctp", "81"}}
		p.expect(ctx, func(from, to string, at port) bool {
			return !isIn(from, "x") && !isIn(to, "x") || (from == "z/b" || from == "z/c") && to == "x/a" && slices.Contains(inward, at) ||
				(from == "x/b" || from == "x/c") && isIn(to, "z") && slices.Contains([]port{web, name, call}, at)
		})

		By("the namespace's label goes")
		p.label(ctx, "z", "team", "none")
		p.expect(ctx, func(from, to string, _ port) bool { return !isIn(from, "x") && !isIn(to, "x") })

		By("blocks of addresses with an exception, and ranges of ports")
		p.spaces["x"].run(ctx, "delete", "networkpolicies", "--all")
		block := func(except string) string {
			return fmt.Sprintf("{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [%s/32]}}], ports: [{port: 70, endPort: 80}, {protocol: UDP, port: 81, endPort: 90}, {protocol: SCTP, port: 1, endPort: 80}]}]}", except)
		}
		ranged := []port{web, name, call}
		p.policy(ctx, "x", "block", block(p.pods["z/c"].Status.PodIP))
		p.expect(ctx, func(from, to string, at port) bool {
			return !isIn(to, "x") || slices.Contains(ranged, at) && from != "z/c"
		})
		By("of another address")
		p.policy(ctx, "x", "block", block(p.pods["x/b"].Status.PodIP))
		p.expect(ctx, func(from, to string, at port) bool {
			return !isIn(to, "x") || slices.Contains(ranged, at) && from != "x/b"
		})

		By("a service's port is that of its endpoint")
		p.spaces["x"].apply(ctx, "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selector: {pod: a}, ports: [{name: open, port: 8000, targetPort: 80}, {name: closed, port: 80, targetPort: 81}]}\n")
		ip := p.spaces["x"].run(ctx, "get", "service", "a", "-o=jsonpath={.spec.clusterIP}")
		for _, client := range []string{"a", "c"} {
			Eventually(func() string {
				return p.spaces["z"].run(ctx, "exec", client, "--", "/server", "--reach=tcp://"+net.JoinHostPort(ip, "8000"), "--reach=tcp://"+net.JoinHostPort(ip, "80"))
			}).Should(Equal("tcp://" + net.JoinHostPort(ip, "8000") + "\n"))
		}
	})

	It("deny and allow from the first connection of a pod, while policies change, and while the agent is killed and starts again", func(ctx SpecContext) {
		p := peers{spaces: map[string]space{"x": newSpace(ctx), "z": newSpace(ctx)}, pods: map[string]*corev1.Pod{}}
		p.spaces["z"].apply(ctx, peer("a"))
		target := p.spaces["z"].await(ctx, "a", beReady()).Status.PodIP
		change := func(other int) {
			p.policy(ctx, "x", "deny", fmt.Sprintf("{podSelector: {matchLabels: {to: deny}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.0.2.%d/32}}]}]}", other))
			p.policy(ctx, "x", "choose", fmt.Sprintf("{podSelector: {matchLabels: {to: choose}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.0.2.%d/32}}, {ipBlock: {cidr: %s/32}}]}]}", other, target))
		}
		change(1)
		var pods []string
		for i := range 4 {
			pods = append(pods, prober(fmt.Sprintf("denied-%d", i), "deny", target))
		}
		p.spaces["x"].apply(ctx, strings.Join(append(pods, prober("free", "allow", target), prober("chosen", "choose", target)), "\n---\n"))
		for i := range 4 {
			p.spaces["x"].await(ctx, fmt.Sprintf("denied-%d", i), beReady())
		}
		p.spaces["x"].await(ctx, "free", beReady())
		own := p.spaces["x"].await(ctx, "chosen", beReady()).Status.PodIP
		Expect(exec.CommandContext(ctx, "nft", "list", "set", "bridge", node.Bridge+"-policies", "addresses-ip").CombinedOutput()).To(MatchRegexp(`"veth\w+" \. `+regexp.QuoteMeta(own)+`\b`), "it may send from its address by its port")
		tried := func(pod string) int {
			out := p.spaces["x"].run(ctx, "logs", pod)
			return strings.Count(out, "open\n") + strings.Count(out, "closed\n")
		}
		Eventually(func() int { return tried("denied-0") }).Should(BeNumerically(">", 3))

		By("changes of policies that do not concern the connections")
		for other := range 10 {
			change(other + 2)
		}
		changed := tried("chosen")
		Eventually(func() int { return tried("chosen") }).Should(BeNumerically(">", changed+5))

		By("kill -9")
		node.Kill()
		Expect(node.Again(ctx)).To(Succeed())
		connect()
		Eventually(func() error { // the agent does not serve logs at once
			_, err := p.spaces["x"].try(ctx, "logs", "denied-0")
			return err
		}).Should(Succeed())
		before := tried("denied-0")
		Eventually(func() int { return tried("denied-0") }).Should(BeNumerically(">", before+20))
		for i := range 4 {
			Expect(p.spaces["x"].run(ctx, "logs", fmt.Sprintf("denied-%d", i))).NotTo(ContainSubstring("open"))
		}
		for _, name := range []string{"free", "chosen"} {
			Expect(p.spaces["x"].run(ctx, "logs", name)).NotTo(ContainSubstring("closed"))
		}
	})

	It("deny by default what pods receive, also while the agent is stopped or killed, and after it has started again", func(ctx SpecContext) {
		p := peers{spaces: map[string]space{"x": newSpace(ctx), "z": newSpace(ctx)}, pods: map[string]*corev1.Pod{}}
		p.policy(ctx, "z", "deny", "{podSelector: {}, policyTypes: [Ingress]}")
		p.policy(ctx, "z", "admit", "{podSelector: {matchLabels: {pod: b}}, policyTypes: [Ingress], ingress: [{}]}")
		p.spaces["z"].apply(ctx, peer("a")+"\n---\n"+peer("b"))
		denied, admitted := p.spaces["z"].await(ctx, "a", beReady()), p.spaces["z"].await(ctx, "b", beReady())
		p.spaces["x"].apply(ctx, prober("denied", "deny", denied.Status.PodIP)+"\n---\n"+prober("admitted", "allow", admitted.Status.PodIP))
		printed := func(pod, word string) int {
			GinkgoHelper()
			files, err := filepath.Glob(filepath.Join(node.LogsDir(), p.spaces["x"].name+"_"+pod+"_*", "main", "0.log"))
			Expect(err).NotTo(HaveOccurred())
			if len(files) == 0 {
				return 0 // the container does not run yet
			}
			content, err := os.ReadFile(files[0])
			Expect(err).NotTo(HaveOccurred())
			return strings.Count(string(content), " "+word+"\n")
		}
		// Attempts that began before are over after so many more, each of which takes a second.
		expectBoth := func() {
			GinkgoHelper()
			closed, open := printed("denied", "closed"), printed("admitted", "open")
			Eventually(func() int { return printed("denied", "closed") - closed }).Should(BeNumerically(">", 20))
			Eventually(func() int { return printed("admitted", "open") - open }).Should(BeNumerically(">", 10))
			Expect([]int{printed("denied", "open"), printed("admitted", "closed")}).To(Equal([]int{0, 0}))
		}
		expectBoth()
		for _, of := range []struct {
			way string
			end func()
		}{
			{"stopped", func() { Expect(node.Stop(launch.Patience)).To(BeZero()) }},
			{"killed", func() { node.Kill() }},
		} {
			By(of.way)
			of.end()
			expectBoth()
			By("started again")
			Expect(node.Again(ctx)).To(Succeed())
			connect()
			p.spaces["z"].await(ctx, "a", beReady())
			expectBoth()
		}
	})
})

// prober returns a pod that keeps connecting to a pod's port 80, and prints whether it
// could: on a busy machine a connection takes seconds, and one that is denied is given up
// after one.
func prober(name, to, address string) string {
	seconds := 5
	if to == "deny" {
		seconds = 1
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {to: %s}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'while true; do (timeout %d wget -q -O /dev/null http://%s/ && echo open || echo closed) 2>/dev/null & sleep 0.1; done']
`, name, to, seconds, address)
}
