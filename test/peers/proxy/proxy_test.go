// Package proxy compares svc's service proxy with the real kube-proxy in its nftables mode:
// each gets the same random services, which change, in a network of namespaces of its own,
// and the same connections are tried. What a connection becomes must be equal: the endpoints
// that answer, and which client they see.
package proxy

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"svc.dev/svc/test/launch"
)

var (
	seed  = flag.Uint64("seed", 1, "seed of the services")
	count = flag.Int("services", 40, "how many services")
	steps = flag.Int("steps", 2, "how often services change")
)

const bridge = "svc0"

// network is a node with pods' namespaces, another node's pods, and a client outside.
type network struct {
	node, pod, far, outside *namespace
	// locals are the endpoints on the node.
	locals [2]*namespace
}

func newNetwork(t *testing.T) network {
	t.Helper()
	n := network{node: newNamespace(t), pod: newNamespace(t), far: newNamespace(t), outside: newNamespace(t), locals: [2]*namespace{newNamespace(t), newNamespace(t)}}
	must(t, n.node.in(func() error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = bridge
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes})
	}))
	n.node.up(bridge, ipv4.in(ipv4.bridge), ipv6.in(ipv6.bridge))
	bridges := []string{ipv4.bridge, ipv6.bridge}
	n.node.connect("pod", n.pod, bridges, nil, ipv4.in(ipv4.pod), ipv6.in(ipv6.pod))
	for i, local := range n.locals {
		n.node.connect(fmt.Sprint("local-", i), local, bridges, nil, ipv4.in(ipv4.endpoints[i]), ipv6.in(ipv6.endpoints[i]))
	}
	n.node.connect("far", n.far, []string{ipv4.far, ipv6.far}, []string{ipv4.in(ipv4.far), ipv6.in(ipv6.far)}, ipv4.in(ipv4.farNode), ipv6.in(ipv6.farNode),
		ipv4.endpoints[2]+"/32", ipv4.endpoints[3]+"/32", ipv6.endpoints[2]+"/128", ipv6.endpoints[3]+"/128")
	n.node.connect("outside", n.outside, []string{ipv4.node, ipv6.node}, []string{ipv4.in(ipv4.node), ipv6.in(ipv6.node)}, ipv4.in(ipv4.outside), ipv6.in(ipv6.outside))
	for _, f := range families {
		// Packets that no rule changes leave the node, so that those of the hook forward decide.
		n.node.route("", f.outside)
		n.node.route(f.farRange, f.farNode)
		for i, address := range f.endpoints {
			of := n.far
			if i < len(n.locals) {
				of = n.locals[i]
			}
			of.serve(net.JoinHostPort(address, fmt.Sprint(podPort)))
		}
	}
	return n
}

// places are where connections come from.
func (n network) places() map[string]*namespace {
	return map[string]*namespace{"pod": n.pod, "endpoint": n.locals[0], "node": n.node, "outside": n.outside}
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
		for _, from := range []string{"pod", "endpoint", "node", "outside"} {
			add := func(kind, host string, port int32) {
				all = append(all, attempt{from, kind, protocol, net.JoinHostPort(host, fmt.Sprint(port)), s})
			}
			if from != "outside" {
				for _, ip := range s.Spec.ClusterIPs {
					add("cluster IP", ip, 80)
					add("cluster IP, without such a port,", ip, 81)
				}
			}
			for _, ip := range s.Spec.ExternalIPs {
				add("external IP", ip, 80)
			}
			for _, ingress := range s.Status.LoadBalancer.Ingress {
				add("load balancer", ingress.IP, 80)
			}
			if port := s.Spec.Ports[0].NodePort; port != 0 {
				for _, f := range s.Spec.IPFamilies {
					add("node port", families[f].node, port)
				}
			}
		}
	}
	return all
}

// rounds is how often a connection is tried: one of four endpoints is missed by chance once in
// 10,000 attempts.
const rounds = 32

// retries is how often what is not answered is tried again, on a busy machine, and repeats how
// often what is different.
const retries, repeats = 2, 3

// verdicts returns what each attempt becomes.
func (n network) verdicts(ctx context.Context, all []attempt) []string {
	found := make([]string, len(all))
	inTurn := map[string][]int{}
	for i, a := range all {
		key := a.String()
		switch {
		case a.protocol == "sctp": // see askSCTP
			key = "sctp from " + a.from
		case sticky(a.service):
			// The first connections of a client must not be at the same time: it would have two
			// endpoints.
			key = a.service.Name
		}
		inTurn[key] = append(inTurn[key], i)
	}
	places := n.places()
	var trying sync.WaitGroup
	slots := make(chan struct{}, threads-2)
	for _, of := range inTurn {
		trying.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			for _, i := range of {
				found[i] = verdict(ctx, places[all[i].from], all[i])
			}
		})
	}
	trying.Wait()
	return found
}

func sticky(s corev1.Service) bool {
	return s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
}

// byNode names those addresses of the node that its own pods may see: kube-proxy always gives the
// node's connections the address of the bridge. Endpoints elsewhere see the address of their network.
var byNode = strings.NewReplacer(
	" from "+ipv4.bridge+",", " from the node,", " from "+ipv4.node+",", " from the node,",
	" from "+ipv6.bridge+",", " from the node,", " from "+ipv6.node+",", " from the node,")

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
		// Which endpoint is chance, and with it which address of the node it sees; one that is
		// led to itself sees the node's.
		if a.from == "endpoint" {
			return "the same endpoint"
		}
		return "the same endpoint from " + strings.NewReplacer(ipv4.far, "the node", ipv6.far, "the node").Replace(client)
	}
	slices.Sort(seen)
	return strings.Join(seen, ", ")
}

// side is a proxy with its network.
type side struct {
	network

	name    string
	server  *apiServer
	process *launch.Process
}

func newSide(t *testing.T, name string, o objects) side {
	t.Helper()
	s := side{network: newNetwork(t), name: name}
	s.server = newAPIServer(t, s.node, o)
	s.process = startProxy(t, s.node, name, s.server.url)
	return s
}

func TestConnectionsBecomeTheSameAsWithKubeProxy(t *testing.T) {
	if os.Getenv("KUBE_PROXY") == "" {
		t.Skip("run it with make test-peers-proxy")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	h := newHistory(rand.New(rand.NewPCG(*seed, 0)), *count)
	sides := [2]side{newSide(t, "svc", h.objects()), newSide(t, "kube-proxy", h.objects())}
	for step := range *steps + 1 {
		o := h.objects()
		for _, s := range sides {
			s.server.set(t, o)
			s.await(t, o, s.process.Output)
			// A client's port may be one of the step before, whose flow goes on as it was.
			must(t, s.node.in(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }))
		}
		compare(t, sides, o)
		if t.Failed() {
			t.Fatalf("after %d changes", step)
		}
		h.change()
	}
}

// both returns what attempts become with either side.
func both(ctx context.Context, sides [2]side, all []attempt) (found [2][]string) {
	var trying sync.WaitGroup
	for i, s := range sides {
		trying.Go(func() { found[i] = s.verdicts(ctx, all) })
	}
	trying.Wait()
	return found
}

// compare compares what each connection becomes. What is not the same is tried again, because
// packets are lost on a busy machine, and an endpoint may be missed by chance.
func compare(t *testing.T, sides [2]side, o objects) {
	t.Helper()
	all := attempts(o)
	found := both(t.Context(), sides, all)
	kinds := map[string]int{}
	for _, kind := range found[1] {
		if strings.Contains(kind, " from ") {
			kind = "answered"
		}
		kinds[kind]++
	}
	t.Logf("%d services, %d connections: %v", len(o.services), len(all), kinds)
	different, of := differences(all, found)
	for range repeats {
		if len(different) == 0 {
			return
		}
		for i, a := range different {
			t.Logf("%s, which is tried again:\nsvc:        %s\nkube-proxy: %s", a, of[0][i], of[1][i])
		}
		different, of = differences(different, both(t.Context(), sides, different))
	}
	for i, a := range different {
		t.Errorf("%s:\nsvc:        %s\nkube-proxy: %s\n%s", a, of[0][i], of[1][i], describe(o, a.service))
	}
}

// differences returns the attempts that do not become the same, and what they become.
func differences(all []attempt, found [2][]string) (different []attempt, of [2][]string) {
	for i, a := range all {
		if found[0][i] != found[1][i] {
			different, of[0], of[1] = append(different, a), append(of[0], found[0][i]), append(of[1], found[1][i])
		}
	}
	return different, of
}

// describe returns what matters of a service.
func describe(o objects, s corev1.Service) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v, internal %s, external %s, affinity %s, ranges %v, annotations %v", s.Spec.Type, s.Spec.IPFamilies, *s.Spec.InternalTrafficPolicy, s.Spec.ExternalTrafficPolicy, s.Spec.SessionAffinity, s.Spec.LoadBalancerSourceRanges, s.Annotations)
	for _, slice := range o.slices {
		if slice.Labels[discoveryv1.LabelServiceName] != s.Name {
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

// await waits until the last service, which has all endpoints, answers at each cluster IP.
func (n network) await(t *testing.T, o objects, output func() string) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for _, ip := range o.services[len(o.services)-1].Spec.ClusterIPs {
		for !strings.Contains(n.pod.ask(t.Context(), "tcp", net.JoinHostPort(ip, "80")), " from ") {
			if time.Now().After(end) {
				t.Fatalf("the last service does not answer at %s: %s", ip, output())
			}
		}
	}
}

// kubeProxy returns the command line of kube-proxy with an API server.
func kubeProxy(t *testing.T, url string) []string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`, url), 0o600))
	return []string{
		os.Getenv("KUBE_PROXY"), "--proxy-mode=nftables", "--kubeconfig=" + config, "--hostname-override=" + nodeName,
		"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=" + bridge, "--nodeport-addresses=0.0.0.0/0,::/0", "--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
	}
}
