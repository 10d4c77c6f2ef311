// Package proxy compares svc's service proxy with the real kube-proxy in its nftables mode: both get
// the same random services in the same network of namespaces, one after the other, and the
// same connections are tried. What a connection becomes must be equal: the endpoints that
// answer, and which client they see.
package proxy

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/proxy"
	"svc.dev/svc/svclet/services"
	"svc.dev/svc/test/launch"
)

var (
	seed  = flag.Uint64("seed", 1, "seed of the services")
	count = flag.Int("services", 60, "how many services")
)

const bridge = "svc0"

// network is a node with two pods' namespaces, another node's pods, and a client outside.
type network struct{ node, pod, local, far, outside *namespace }

func newNetwork(t *testing.T) network {
	t.Helper()
	n := network{newNamespace(t), newNamespace(t), newNamespace(t), newNamespace(t), newNamespace(t)}
	must(t, n.node.in(func() error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = bridge
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes})
	}))
	n.node.up(bridge, "10.244.0.1/24")
	n.node.connect("pod", n.pod, "10.244.0.1", "", "10.244.0.2/24")
	n.node.connect("local", n.local, "10.244.0.1", "", endpoints[0]+"/24", endpoints[1]+"/24")
	n.node.connect("far", n.far, "192.0.3.1", "192.0.3.1/24", "192.0.3.2/24", endpoints[2]+"/32", endpoints[3]+"/32")
	n.node.connect("outside", n.outside, "192.0.2.1", "192.0.2.1/24", "192.0.2.9/24")
	// Packets that no rule changes leave the node, so that those of the hook forward decide.
	must(t, n.node.in(func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("192.0.2.9")}) }))
	// Each refusal is sent, and not one in a second.
	must(t, n.node.in(func() error { return os.WriteFile("/proc/sys/net/ipv4/icmp_ratelimit", []byte("0"), 0o600) }))
	must(t, n.node.in(func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 244, 1, 0), Mask: net.CIDRMask(24, 32)}, Gw: net.ParseIP("192.0.3.2")})
	}))
	for i, address := range endpoints {
		of := n.local
		if i > 1 {
			of = n.far
		}
		of.serve(fmt.Sprintf("%s:%d", address, podPort))
	}
	return n
}

// attempt is a connection from a place to an address of a service.
type attempt struct {
	from, kind, protocol, address string
	service                       corev1.Service
}

func (a attempt) String() string {
	return fmt.Sprintf("%s from %s to the %s %s of %s", a.protocol, a.from, a.kind, a.address, a.service.Name)
}

// attempts are those that are compared. A difference that is intended is left out: only the node
// and its pods reach cluster IPs of svc, and only svc has node ports at 127.0.0.1.
func attempts(o objects) []attempt {
	var all []attempt
	for _, s := range o.services {
		protocol := strings.ToLower(string(s.Spec.Ports[0].Protocol))
		for _, from := range []string{"pod", "node", "outside"} {
			add := func(kind, host string, port int32) {
				all = append(all, attempt{from, kind, protocol, net.JoinHostPort(host, fmt.Sprint(port)), s})
			}
			if from != "outside" {
				add("cluster IP", s.Spec.ClusterIP, 80)
				add("cluster IP, without such a port,", s.Spec.ClusterIP, 81)
			}
			for _, ip := range s.Spec.ExternalIPs {
				add("external IP", ip, 80)
			}
			for _, ingress := range s.Status.LoadBalancer.Ingress {
				add("load balancer", ingress.IP, 80)
			}
			if port := s.Spec.Ports[0].NodePort; port != 0 {
				add("node port", "192.0.2.1", port)
			}
		}
	}
	return all
}

// rounds is how often a connection is tried: one of four endpoints is missed by chance once in
// 10,000 attempts.
const rounds = 32

// retries is how often what is not answered is tried again, on a busy machine.
const retries = 2

// verdicts returns what each attempt becomes.
func (n network) verdicts(ctx context.Context, all []attempt) []string {
	found := make([]string, len(all))
	places := map[string]*namespace{"pod": n.pod, "node": n.node, "outside": n.outside}
	var trying sync.WaitGroup
	slots := make(chan struct{}, threads-2)
	for i, a := range all {
		if sticky(a.service) {
			continue
		}
		slots <- struct{}{}
		trying.Go(func() {
			defer func() { <-slots }()
			found[i] = verdict(ctx, places[a.from], a)
		})
	}
	trying.Wait()
	// The first connections of a client must not be at the same time: it would have two
	// endpoints.
	for i, a := range all {
		if sticky(a.service) {
			found[i] = verdict(ctx, places[a.from], a)
		}
	}
	return found
}

func sticky(s corev1.Service) bool {
	return s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
}

// byNode names those addresses of the node that its own pods may see: kube-proxy always gives the
// node's connections the address of the bridge. Endpoints elsewhere see the address of their network.
var byNode = strings.NewReplacer(" from 10.244.0.1,", " from the node,", " from 192.0.2.1,", " from the node,")

func verdict(ctx context.Context, from *namespace, a attempt) string {
	var seen []string
	for range rounds {
		answer := from.ask(ctx, a.protocol, a.address)
		for range retries {
			if !strings.Contains(answer, " from ") {
				answer = from.ask(ctx, a.protocol, a.address)
			}
		}
		answer = strings.TrimSuffix(byNode.Replace(answer+","), ",")
		if !slices.Contains(seen, answer) {
			seen = append(seen, answer)
		}
		if !strings.Contains(answer, " from ") {
			break // an answer that is no endpoint's takes long, and does not change
		}
	}
	if sticky(a.service) && len(seen) == 1 && strings.Contains(seen[0], " from ") {
		_, client, _ := strings.Cut(seen[0], " from ")
		// Which endpoint is chance, and with it which address of the node it sees.
		return "the same endpoint from " + strings.Replace(client, "192.0.3.1", "the node", 1)
	}
	slices.Sort(seen)
	return strings.Join(seen, ", ")
}

func TestConnectionsBecomeTheSameAsWithKubeProxy(t *testing.T) {
	if os.Getenv("KUBE_PROXY") == "" {
		t.Skip("run it with make test-peers-proxy")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	o := newObjects(rand.New(rand.NewPCG(*seed, 0)), *count)
	all := attempts(o)
	n := newNetwork(t)
	want := withKubeProxy(t, n, o, all)
	got := withSVC(t, n, o, all)
	kinds := map[string]int{}
	for i, a := range all {
		if got[i] != want[i] {
			t.Errorf("%s:\nsvc:        %s\nkube-proxy: %s\n%s", a, got[i], want[i], describe(o, a.service))
		}
		kind := want[i]
		if strings.Contains(kind, " from ") {
			kind = "answered"
		}
		kinds[kind]++
	}
	t.Logf("%d services, %d connections: %v", *count, len(all), kinds)
}

// describe returns what matters of a service.
func describe(o objects, s corev1.Service) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, internal %s, external %s, affinity %s, ranges %v, annotations %v", s.Spec.Type, *s.Spec.InternalTrafficPolicy, s.Spec.ExternalTrafficPolicy, s.Spec.SessionAffinity, s.Spec.LoadBalancerSourceRanges, s.Annotations)
	for _, slice := range o.slices {
		if slice.Name != s.Name {
			continue
		}
		for _, e := range slice.Endpoints {
			fmt.Fprintf(&b, "\n  %s on %s, ready %t, serving %t, terminating %t", e.Addresses[0], *e.NodeName, *e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating)
			if e.Hints != nil {
				fmt.Fprintf(&b, ", for %v", e.Hints.ForZones)
			}
		}
	}
	return b.String()
}

// await waits until the first service, which has all endpoints, answers.
func (n network) await(t *testing.T, o objects, output func() string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if strings.Contains(n.pod.ask(t.Context(), "tcp", o.services[0].Spec.ClusterIP+":80"), " from ") {
			return
		}
	}
	t.Fatalf("the first service does not answer: %s", output())
}

// kubeProxy returns the command line of kube-proxy with an API server.
func kubeProxy(t *testing.T, url string) []string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`, url), 0o600))
	return []string{
		os.Getenv("KUBE_PROXY"), "--proxy-mode=nftables", "--kubeconfig=" + config, "--hostname-override=" + nodeName,
		"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=" + bridge, "--nodeport-addresses=0.0.0.0/0", "--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
	}
}

// withKubeProxy returns the verdicts with kube-proxy, and removes its rules.
func withKubeProxy(t *testing.T, n network, o objects, all []attempt) []string {
	t.Helper()
	var listener net.Listener
	must(t, n.node.in(func() (err error) { listener, err = net.Listen("tcp4", "127.0.0.1:0"); return err }))
	server := &http.Server{Handler: api(o)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // it ends by Close
	defer func() { server.Close(); serving.Wait() }()
	command := exec.Command("nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), n.node.fd)}, kubeProxy(t, "http://"+listener.Addr().String())...)...)
	process, err := launch.StartCommand(command)
	must(t, err)
	n.await(t, o, process.Output)
	verdicts := n.verdicts(t.Context(), all)
	if _, err := process.Stop(launch.Patience); err != nil {
		t.Log(err)
	}
	for _, family := range []string{"ip", "ip6"} {
		must(t, n.node.in(func() error { return exec.Command("nft", "delete", "table", family, "kube-proxy").Run() }))
	}
	return verdicts
}

// withSVC returns the verdicts with svc's proxy.
func withSVC(t *testing.T, n network, o objects, all []attempt) []string {
	t.Helper()
	store := services.New()
	var listed, slices []any
	for i := range o.services {
		listed, slices = append(listed, &o.services[i]), append(slices, &o.slices[i])
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- n.node.in(func() error {
			p, err := proxy.New(proxy.Options{
				Services: store, Node: nodeName, Zone: func() string { return zone }, Addresses: func() []string { return nodeconfig.HostIPs(&o.node) }, Bridge: bridge, PodRanges: func() []string { return o.node.Spec.PodCIDRs }, Clock: clock.RealClock{},
			})
			if err != nil {
				return err
			}
			if err := errors.Join(store.Services().Replace(listed, ""), store.EndpointSlices().Replace(slices, "")); err != nil {
				return err
			}
			p.Run(ctx)
			return nil
		})
	}()
	defer func() { stop(); must(t, <-ended) }()
	n.await(t, o, func() string { return "svc's proxy" })
	return n.verdicts(t.Context(), all)
}
