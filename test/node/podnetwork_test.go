package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// otherMachine is a network namespace on a network with this machine, which stands for
// another machine. It reaches the API server at the address that this machine does.
func otherMachine(ctx SpecContext, name string) (address string) {
	GinkgoHelper()
	if _, err := exec.LookPath("ip"); err != nil {
		Skip(err.Error())
	}
	ip := func(args ...string) {
		GinkgoHelper()
		out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "ip %v: %s", args, out)
	}
	text, err := launch.FreeCIDR()
	Expect(err).NotTo(HaveOccurred())
	network := netip.MustParsePrefix(text)
	here := network.Addr().Next()
	there := here.Next()
	ip("netns", "add", name)
	DeferCleanup(func() {
		out, err := exec.Command("ip", "netns", "del", name).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
	})
	ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
	ip("addr", "add", here.String()+"/24", "dev", name)
	ip("link", "set", name, "up")
	ip("-n", name, "addr", "add", there.String()+"/24", "dev", "eth0")
	ip("-n", name, "link", "set", "lo", "up")
	ip("-n", name, "link", "set", "eth0", "up")
	// The suite's node is on the same network with its own address, too.
	own := hostAddress(ctx)
	ip("-n", name, "route", "add", own+"/32", "dev", "eth0")
	ip("-n", name, "route", "add", "default", "via", here.String())
	forward(ctx, name)
	return there.String()
}

// hostAddress returns the address of the suite's node.
func hostAddress(ctx context.Context) string {
	GinkgoHelper()
	var n corev1.Node
	Expect(client.Get(ctx, ctrlclient.ObjectKey{Name: nodeName()}, &n)).To(Succeed())
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	Fail("the suite's node has no address")
	return ""
}

// forward leads connections to the API server's address in a network namespace to the API
// server, which may listen at a loopback address only.
func forward(ctx context.Context, namespace string) {
	GinkgoHelper()
	server, err := url.Parse(node.Config.Host)
	Expect(err).NotTo(HaveOccurred())
	listener, err := listenIn(ctx, "/run/netns/"+namespace, server.Host)
	Expect(err).NotTo(HaveOccurred())
	var open sync.WaitGroup
	var mu sync.Mutex
	var all []net.Conn
	open.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).Dial("tcp", server.Host)
			if err != nil {
				in.Close()
				continue
			}
			mu.Lock()
			all = append(all, in, out)
			mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				open.Go(func() {
					_, _ = io.Copy(pair[0], pair[1]) // the client and the server see the end
					pair[0].Close()
				})
			}
		}
	})
	DeferCleanup(func() {
		listener.Close()
		mu.Lock()
		for _, c := range all {
			c.Close()
		}
		mu.Unlock()
		open.Wait()
	})
}

// listenIn opens a port in a network namespace.
func listenIn(ctx context.Context, namespace, address string) (listener net.Listener, err error) {
	err = in(namespace, func() error {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		return err
	})
	return listener, err
}

// getFrom returns what a URL with an IP address answers to a network namespace.
func getFrom(ctx context.Context, namespace, url string) (string, error) {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = in(namespace, func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return string(content), err
}

// in runs a function in a network namespace.
func in(namespace string, do func() error) error {
	there, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer there.Close()
	done := make(chan error)
	go func() {
		// The thread must go back: the first one of the process, which /proc/self describes,
		// cannot end.
		runtime.LockOSThread()
		here, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer here.Close()
		if err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err == nil {
			err = do()
		}
		back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET)
		if back == nil {
			runtime.UnlockOSThread()
		}
		done <- errors.Join(err, back)
	}()
	return <-done
}

var _ = Describe("two machines", func() {
	It("connect their pods, which see each other's addresses and are protected from each other", func(ctx SpecContext) {
		const name = "svcother"
		here := "nodeName: " + nodeName()
		address := otherMachine(ctx, name)
		// A namespace may begin with that of this machine, which its own agent has set.
		guarded, err := exec.CommandContext(ctx, "nsenter", "--net=/run/netns/"+name, "sysctl", "-w", "net.ipv4.conf.all.route_localnet=0").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(guarded))
		// The firewall refuses forwarded connections, like Fedora's iptables-services, but for those that docs/pod-network.md names.
		firewall := func() {
			GinkgoHelper()
			for _, rule := range []string{"-F FORWARD", "-A FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT", "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-A FORWARD -j REJECT --reject-with icmp-host-prohibited"} {
				out, err := exec.CommandContext(ctx, "nsenter", append([]string{"--net=/run/netns/" + name, "iptables"}, strings.Fields(rule)...)...).CombinedOutput()
				Expect(err).NotTo(HaveOccurred(), "%s: %s", rule, out)
			}
		}
		firewall()
		m := newJoining("other", name)
		m.join(ctx, "--node-ip="+address)
		m.approve(ctx)
		for _, image := range images {
			m.importImage(ctx, image)
		}
		s := newSpace(ctx)
		s.apply(ctx, strings.Join([]string{
			sleeper("near", here), labelled(webServer("near-web", here)),
			sleeper("far", "nodeName: other"), webServer("far-web", "nodeName: other"),
			"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}",
		}, "\n---\n"))
		addresses := map[string]string{}
		for _, pod := range []string{"near", "near-web", "far", "far-web"} {
			addresses[pod] = s.await(ctx, pod, beReady()).Status.PodIP
		}
		seen := func(from, to string) func() string {
			return func() string {
				// exec fails until the agent has its serving certificate.
				out, _ := s.try(ctx, "exec", from, "--", "sh", "-c", "exec 2>/dev/null; timeout 2 wget -q -O - http://"+to+"/client || echo none")
				return out
			}
		}

		By("by their addresses, in both directions")
		Eventually(seen("near", addresses["far-web"]+":8080")).Should(Equal(addresses["near"] + "\n"))
		Eventually(seen("far", addresses["near-web"]+":8080")).Should(Equal(addresses["far"] + "\n"))
		By("through a service, by its name")
		Eventually(seen("far", "web")).Should(Equal(addresses["far"] + "\n"))
		By("through node ports of either machine, and a load balancer")
		s.apply(ctx, `
apiVersion: v1
kind: Service
metadata: {name: ports}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 8097, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: local}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: web}, ports: [{port: 8098, targetPort: 8080}]}
`)
		ports := s.run(ctx, "get", "service", "ports", "-o=jsonpath={.spec.ports[0].nodePort}")
		for _, from := range []string{"near", "far"} {
			for _, to := range []string{hostAddress(ctx) + ":" + ports, address + ":" + ports, hostAddress(ctx) + ":8097", "balanced:8097"} {
				Eventually(seen(from, to)).Should(MatchRegexp(`^[0-9.]+\n$`), "from %s to %s", from, to) // not always its own address
			}
		}
		By("the API server, by its name")
		Expect(s.exec(ctx, "far", `printf 'GET / HTTP/1.0\r\n\r\n' | nc kubernetes.default.svc 443`)).To(ContainSubstring("Client sent an HTTP request to an HTTPS server"))
		By("with externalTrafficPolicy Local only by the machine with the endpoint, which sees the client's address")
		local := s.run(ctx, "get", "service", "local", "-o=jsonpath={.spec.ports[0].nodePort} {.spec.healthCheckNodePort}")
		port, health, _ := strings.Cut(local, " ")
		fetch := func(to, path string) func() (string, error) {
			return func() (string, error) { return getFrom(ctx, "/run/netns/"+name, "http://"+to+path) }
		}
		Eventually(fetch(hostAddress(ctx)+":"+port, "/client")).Should(Equal(address + "\n"))
		Eventually(fetch(hostAddress(ctx)+":"+health, "/")).Should(ContainSubstring(`"localEndpoints":1`))
		Eventually(fetch(address+":"+health, "/")).Should(ContainSubstring(`"localEndpoints":0`))
		Expect(seen("near", address+":"+port)()).To(Equal("none\n"))
		By("from the other machine itself, by every address")
		every := []string{s.run(ctx, "get", "service", "web", "-o=jsonpath={.spec.clusterIP}"), "127.0.0.1:" + ports, address + ":" + ports, hostAddress(ctx) + ":8097"}
		for _, to := range every {
			Eventually(fetch(to, "/")).Should(Equal("near-web\n"), to)
		}
		By("after another program has removed the route")
		out, err := exec.CommandContext(ctx, "nsenter", "--net=/run/netns/"+name, "ip", "route", "flush", "proto", "118").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Eventually(seen("far", "web")).Should(Equal(addresses["far"] + "\n"))
		By("after a restart of its firewall, which removes the rules of others")
		firewall()
		Eventually(seen("far", addresses["near-web"]+":8080")).Should(Equal(addresses["far"] + "\n"))

		By("while a service with pods on both is rolled over: no request of either machine's pods fails")
		clients := map[string]podClient{}
		s.apply(ctx, webServer("near-client", here)+"\n---\n"+webServer("far-client", "nodeName: other"))
		for _, name := range []string{"near-client", "far-client"} {
			clients[name] = podClient(s.await(ctx, name, beReady()).Status.PodIP)
		}
		loaded := startUnderLoad(ctx, s, "other", nodeName())
		for _, client := range clients {
			client.start(ctx, loaded, loadRate(), false)
		}
		rollOver(ctx, s, "other", nodeName())
		By("and while containerd and the agent of the other machine are killed, and the agent starts again")
		m.kill()
		s.run(ctx, "scale", "deployment/loaded-"+nodeName(), "--replicas=3")
		awaitRollout(ctx, s, []string{nodeName()})
		m.again()
		s.run(ctx, "scale", "deployment/loaded-other", "--replicas=3")
		awaitRollout(ctx, s, []string{"other"})
		for _, client := range clients {
			client.end(ctx)
		}

		By("a policy that admits one pod of the other machine")
		s.apply(ctx, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {may: enter}}}]}]
`)
		Eventually(seen("far", "web")).Should(Equal("none\n"))
		s.run(ctx, "label", "pod", "far", "may=enter")
		Eventually(seen("far", "web")).Should(Equal(addresses["far"] + "\n"))

		By("while its agent is stopped")
		m.end()
		Expect(seen("near", addresses["far-web"]+":8080")()).To(Equal(addresses["near"] + "\n"))

		By("while svc up is killed, too, and after it has started again")
		s.run(ctx, "delete", "networkpolicy", "web")
		for _, to := range every {
			Eventually(fetch(to, "/")).Should(Equal("near-web\n"), to)
		}
		node.Kill()
		for _, to := range every {
			Expect(fetch(to, "/")()).To(Equal("near-web\n"), to)
		}
		Expect(node.Again(ctx)).To(Succeed())
		connect()
		for _, to := range every {
			Eventually(fetch(to, "/")).Should(Equal("near-web\n"), to)
		}

		By("a reset and the end of the node remove the routes")
		m.reset(ctx)
		left, err := exec.CommandContext(ctx, "nsenter", "--net=/run/netns/"+name, "sh", "-c", "ip route; nft list ruleset; iptables-save; sysctl net.ipv4.conf.all.route_localnet").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(left))
		Expect(string(left)).NotTo(Or(ContainSubstring("proto 118"), ContainSubstring("svc0")))
		Expect(string(left)).To(ContainSubstring("route_localnet = 0"))
		Expect(routes(ctx)).To(ContainSubstring("via " + address + " "))
		run(ctx, "delete", "node", "other")
		Eventually(func() (string, error) { return routes(ctx) }).ShouldNot(ContainSubstring("via " + address + " "))
	})
})

var _ = Describe("two machines with a router between them", func() {
	It("connect their pods by VXLAN, with packets of any length, beside Docker on one and ufw on the other", func(ctx SpecContext) {
		machines := map[string]*joining{}
		firewalls, before := map[string]firewall{}, map[string][]string{}
		for _, name := range []string{"svcvxa", "svcvxb"} {
			address := otherMachine(ctx, name) // on a network of its own: this machine is the router
			firewalls[name] = loadFirewallOf(ctx, name)
			before[name] = firewalls[name].rules(ctx)
			machines[name] = joinByVXLAN(ctx, name, address)
		}
		s := newSpace(ctx)
		addresses := map[string]string{}
		for name := range machines {
			s.apply(ctx, sleeper(name+"-client", "nodeName: "+name)+"\n---\n"+webServer(name+"-web", "nodeName: "+name))
		}
		for name := range machines {
			addresses[name+"-client"] = s.await(ctx, name+"-client", beReady()).Status.PodIP
			addresses[name+"-web"] = s.await(ctx, name+"-web", beReady()).Status.PodIP
		}
		seen := func(from, to string) func() string {
			return func() string {
				out, _ := s.try(ctx, "exec", from+"-client", "--", "sh", "-c", "exec 2>/dev/null; timeout 2 wget -q -O - http://"+addresses[to+"-web"]+":8080/client || echo none")
				return out
			}
		}
		reach := func() {
			GinkgoHelper()
			Eventually(seen("svcvxa", "svcvxb")).Should(Equal(addresses["svcvxa-client"] + "\n"))
			Eventually(seen("svcvxb", "svcvxa")).Should(Equal(addresses["svcvxb-client"] + "\n"))
		}
		By("by their addresses, in both directions")
		reach()
		By("by a service, and names")
		s.apply(ctx, "apiVersion: v1\nkind: Service\nmetadata: {name: both}\nspec: {selector: {app: both}, ports: [{port: 80, targetPort: 8080}]}")
		s.run(ctx, "label", "pod", "svcvxa-web", "svcvxb-web", "app=both")
		for name := range machines {
			Eventually(func() string {
				out, _ := s.try(ctx, "exec", name+"-client", "--", "sh", "-c", "exec 2>/dev/null; for i in $(seq 20); do timeout 2 wget -q -O - http://both/ || echo none; done | sort -u")
				return out
			}).Should(Equal("svcvxa-web\nsvcvxb-web\n"))
		}
		By("without a change of the rules of others")
		for name := range machines {
			Expect(firewalls[name].rules(ctx)).To(ContainElements(before[name]))
		}
		By("with full packets, which must not be fragmented")
		Expect(s.exec(ctx, "svcvxa-client", "ip link show eth0")).To(ContainSubstring(" mtu 1450 "))
		Expect(s.exec(ctx, "svcvxa-client", "ping -c 1 -s 1422 -W 5 "+addresses["svcvxb-web"])).To(ContainSubstring(" 0% packet loss"))
		By("from a machine to a service whose pod is on the other: the answer, too, comes through the tunnel")
		s.apply(ctx, "apiVersion: v1\nkind: Service\nmetadata: {name: far}\nspec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}")
		s.run(ctx, "label", "--overwrite", "pod", "svcvxb-web", "app=web")
		service := s.run(ctx, "get", "service", "far", "-o=jsonpath={.spec.clusterIP}")
		out, err := exec.CommandContext(ctx, "nsenter", "--net=/run/netns/svcvxa", "sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Eventually(func() (string, error) { return getFrom(ctx, "/run/netns/svcvxa", "http://"+service+"/client") }).Should(MatchRegexp(`^[0-9.]+\n$`))
		By("after another program has removed the tunnel")
		out, err = exec.CommandContext(ctx, "nsenter", "--net=/run/netns/svcvxa", "ip", "link", "del", "svc0-vx").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		reach()
		By("while an agent is stopped")
		machines["svcvxb"].end()
		Expect(seen("svcvxa", "svcvxb")()).To(Equal(addresses["svcvxa-client"] + "\n"))
		By("a reset removes the tunnel, and nothing of others")
		machines["svcvxb"].reset(ctx)
		Expect(firewalls["svcvxb"].rules(ctx)).To(Equal(before["svcvxb"]))
		links, err := exec.CommandContext(ctx, "nsenter", "--net=/run/netns/svcvxb", "ip", "-o", "link").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(links))
		Expect(string(links)).NotTo(ContainSubstring("svc0"))
	})
})

// loadFirewallOf loads the rules of Docker on the machine svcvxa, and those of ufw on another.
func loadFirewallOf(ctx context.Context, name string) firewall {
	GinkgoHelper()
	if name == "svcvxa" {
		f := loadFirewall(ctx, name, "testdata/docker.rules")
		f.run(ctx, "", "ip", "link", "add", "docker0", "type", "bridge")
		f.run(ctx, "", "ip", "addr", "add", "172.17.0.1/16", "dev", "docker0")
		return f
	}
	// As docs/pod-network.md says; an agent of the suite has another port than 10250.
	return loadFirewall(ctx, name, "testdata/ufw.rules", "-A ufw-user-input -i svc0 -j ACCEPT", "-A ufw-user-input -p udp -m udp --dport 8472 -j ACCEPT", "-A ufw-user-input -p tcp -m tcp --dport 1024:65535 -j ACCEPT")
}

// joinByVXLAN makes a network namespace with an address join as a machine, with the images of
// the suite.
func joinByVXLAN(ctx SpecContext, name, address string) *joining {
	GinkgoHelper()
	cgroup := fmt.Sprintf("svct%08x", rand.Uint32())
	Expect(launch.MakeCgroup(cgroup)).To(Succeed())
	DeferCleanup(func() { // after the reset, by which pods end
		Eventually(func() error { return launch.RemoveCgroup(cgroup) }).Should(Succeed())
	})
	m := newJoining(name, name)
	// Agents on one machine need directories of logs of their own.
	Expect(os.MkdirAll(m.etc, 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(m.etc, "svclet.yaml"), []byte(`
apiVersion: svclet.config.k8s.io/v1beta1
kind: SvcletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: ca.crt}}
authorization: {mode: Webhook}
readOnlyPort: 0
rotateCertificates: true
serverTLSBootstrap: true
podLogsDir: `+filepath.Join(m.etc, "logs")+"\n"), 0o600)).To(Succeed())
	m.join(ctx, "--node-ip="+address, "--pod-network=vxlan", "--cgroup-root=/"+cgroup)
	m.approve(ctx)
	for _, image := range images {
		m.importImage(ctx, image)
	}
	return m
}

// routes returns this machine's routes to pods of other nodes.
func routes(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "ip", "route", "show", "proto", "118").CombinedOutput()
	if err != nil {
		return "", errors.Join(err, fmt.Errorf("ip route: %s", out))
	}
	return string(out), nil
}
