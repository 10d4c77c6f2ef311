//go:build linux

package proxy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/netnstest"
	"svc.dev/svc/svclet/nft"
	"svc.dev/svc/svclet/proxy/ruleset"
	"svc.dev/svc/svclet/services"
)

// sticky is a service with session affinity, and the endpoints of its random changes.
type sticky struct {
	*testing.T
	store  *services.Store
	random *rand.Rand
	// all are the endpoints, now those that the service has.
	all, now []string
	// of are the endpoints of clients, as long as these are there.
	of map[string]string
}

// newSticky returns a service of eight endpoints, with as many clients as are given.
func newSticky(t *testing.T, clients int) *sticky {
	s := &sticky{T: t, store: services.New(), random: rand.New(rand.NewPCG(1, 2)), of: map[string]string{}}
	for i := range clients {
		client := fmt.Sprintf("192.0.2.%d", i+1)
		if err := addToLoopback(client); err != nil {
			t.Error(err)
		}
		s.of[client] = ""
	}
	for i := range 8 {
		s.all = append(s.all, fmt.Sprintf("10.244.0.%d", i+1))
		echoClient(t, s.all[i])
	}
	names := service("names", "10.96.0.1")
	names.Spec.Ports[0], names.Spec.SessionAffinity = corev1.ServicePort{Protocol: corev1.ProtocolUDP, Port: 53}, corev1.ServiceAffinityClientIP
	if err := errors.Join(routeToLoopback("10.96.0.1"), s.store.Services().Replace([]any{names}, "")); err != nil {
		t.Error(err)
	}
	return s
}

// change gives the service up to six random endpoints.
func (s *sticky) change(p *Proxy) {
	s.random.Shuffle(len(s.all), func(i, j int) { s.all[i], s.all[j] = s.all[j], s.all[i] })
	s.now = s.all[:1+s.random.IntN(6)]
	endpoints := slice("names-1", "names", "")
	endpoints.Ports[0].Protocol, endpoints.Ports[0].Port, endpoints.Endpoints = ptr.To(corev1.ProtocolUDP), ptr.To[int32](5353), nil
	for client, of := range s.of {
		if !slices.Contains(s.now, of) {
			s.of[client] = ""
		}
	}
	for _, address := range s.now {
		endpoints.Endpoints = append(endpoints.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	if err := s.store.EndpointSlices().Replace([]any{endpoints}, ""); err != nil {
		s.Error(err)
	}
	if !p.sync(s.Context()) {
		s.Error(p.Problem())
	}
}

// connect lets some of the clients connect, and reports how many had an endpoint that is still there:
// they must get the same.
func (s *sticky) connect(change int) (stayed int) {
	for client, before := range s.of {
		if s.random.IntN(3) == 0 {
			continue
		}
		server, _ := askFrom(s.T, client, "10.96.0.1", 53)
		if !slices.Contains(s.now, server) || before != "" && server != before {
			s.Errorf("after change %d to %v, the client %s gets %q, and before %q", change, s.now, client, server, before)
		}
		if s.of[client] = server; before != "" {
			stayed++
		}
	}
	return stayed
}

// A client stays with its endpoint while that is there, whatever other endpoints come, go and come
// back, and also when the agent starts again.
func TestClientsStayWithTheirEndpointThroughRandomChangesInTheKernel(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		s := newSticky(t, 12)
		p := newKernelProxy(t, s.store)
		stayed := 0
		for i := range 60 {
			if p == nil {
				return
			}
			if s.change(p); s.random.IntN(4) == 0 {
				p = newKernelProxy(t, s.store)
				continue // the next change is that of the first sync of an agent
			}
			stayed += s.connect(i)
		}
		if stayed < 50 {
			t.Errorf("only %d clients had endpoints that stayed", stayed)
		}
		found, err := nft.Members(t.Context(), p.tables[0].nft, ruleset.IsClients)
		if err != nil || len(found) == 0 || len(found) > len(s.all) {
			t.Errorf("the sets of clients are %v: %v", found, err)
		}
	})
}

// A set of clients has no size: for one with a size the kernel takes memory of as many clients when it
// makes the set. Then it has room for as many as the package ruleset restores.
func TestSetsOfClientsGrowWithThemInTheKernel(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		s := newSticky(t, 0)
		p := newKernelProxy(t, s.store)
		if p == nil {
			return
		}
		s.change(p)
		out, err := exec.CommandContext(t.Context(), "nft", "list", "sets", "ip").CombinedOutput()
		sets := strings.Split(string(out), "set clients-")[1:]
		if err != nil || len(sets) != len(s.now) {
			t.Errorf("%d endpoints, error %v, sets\n%s", len(s.now), err, out)
		}
		for _, set := range sets {
			if !strings.Contains(set, "size 65535") { // what nft prints of a set without a size
				t.Errorf("a set of clients is\n%s", set)
			}
		}
	})
}

// The chains and sets of numbers of endpoints that no service with session affinity has any more go.
func TestAServiceWithSessionAffinityThatChangesLeavesFewSetsBehind(t *testing.T) {
	p, v4 := listedServices(t)
	random := rand.New(rand.NewPCG(3, 4))
	web := service("web", "10.96.0.1")
	web.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	must(t, p.options.Services.Services().Update(web))
	for range 200 {
		endpoints := slice("web-1", "web", "")
		endpoints.Ports[0].Protocol, endpoints.Endpoints = ptr.To(corev1.ProtocolTCP), nil
		for i := range 30 {
			if i == 0 || random.IntN(2) == 0 {
				endpoints.Endpoints = append(endpoints.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.1.%d", i)}})
			}
		}
		must(t, p.options.Services.EndpointSlices().Update(endpoints))
		if !p.sync(t.Context()) {
			t.Fatal(p.Problem())
		}
	}
	dump := v4.Dump()
	sets, chains, clients := strings.Count(dump, "add set ip svc0 cluster-ips-of-numbers-"), strings.Count(dump, "add chain ip svc0 cluster-ips-of-numbers-"), strings.Count(dump, "add set ip svc0 clients-cluster-ips-")
	if sets > 40 || chains != sets || clients > 40 {
		t.Errorf("%d sets and %d chains of numbers, %d sets of clients", sets, chains, clients)
	}
	web.Spec.SessionAffinity = corev1.ServiceAffinityNone
	must(t, p.options.Services.Services().Update(web))
	if !p.sync(t.Context()) || strings.Contains(strings.Join(v4.runs[1:], ""), "delete table") {
		t.Errorf("the whole table has been written again: %v", p.Problem())
	}
}
