package hostloadbalancer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// node returns a ready node with internal addresses.
func node(name string, change func(*corev1.Node), addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}
	for _, address := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	if change != nil {
		change(n)
	}
	return n
}

func notReady(n *corev1.Node) { n.Status.Conditions = nil }
func excluded(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" }

func agentAt(number int32) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.DaemonEndpoints.KubeletEndpoint.Port = number }
}

// balancer returns a service with a port, created in some second.
func balancer(name string, second int64, number int32, change func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Time{Time: time.Unix(second, 0)}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: number}},
		},
	}
	if change != nil {
		change(svc)
	}
	return svc
}

func class(name string) func(*corev1.Service) {
	return func(svc *corev1.Service) { svc.Spec.LoadBalancerClass = &name }
}

// has gives a service a load balancer with ports of TCP; without ports it is one of an earlier release.
func has(ports ...int32) func(*corev1.Service) {
	return func(svc *corev1.Service) {
		ingress := corev1.LoadBalancerIngress{IP: "10.0.0.1"}
		for _, p := range ports {
			ingress.Ports = append(ingress.Ports, corev1.PortStatus{Port: p, Protocol: corev1.ProtocolTCP})
		}
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{ingress}
	}
}

// nodePort is a service with a node port.
func nodePort(name string, second int64, number int32) *corev1.Service {
	return balancer(name, second, 80, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, number
	})
}

// alsoAt adds a port of TCP.
func alsoAt(number int32) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: number})
	}
}

func both(a, b func(*corev1.Service)) func(*corev1.Service) {
	return func(s *corev1.Service) { a(s); b(s) }
}

func local(svc *corev1.Service) {
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// endpoint is a slice of the service with one endpoint, on the node.
func endpoint(service, node string, ready bool) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Endpoints:  []discoveryv1.Endpoint{{NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
}

func TestServicesGetAddressesOfNodes(t *testing.T) {
	a, b := node("a", nil, "10.0.0.1"), node("b", nil, "10.0.0.2", "fd00::2")
	headless := endpoint("web", "a", true)
	headless.Labels[corev1.IsHeadlessService] = ""
	testDecide(t, []decideCase{
		{
			name: "a service without a class, and one with this class", nodes: []*corev1.Node{b, a},
			services: []*corev1.Service{balancer("web", 1, 80, nil), balancer("db", 2, 5432, class(Class))},
			want:     []string{"web 10.0.0.1,10.0.0.2", "db 10.0.0.1,10.0.0.2"},
		},
		{
			name: "services of other classes and types are ignored, and those that are being deleted", nodes: []*corev1.Node{a},
			services: []*corev1.Service{
				balancer("theirs", 1, 80, class("example.com/lb")), balancer("cluster-ip", 1, 80, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }),
				balancer("gone", 1, 80, func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{} }), balancer("web", 2, 80, nil),
			},
			want: []string{"web 10.0.0.1"},
		},
		{
			name: "the addresses are of the service's families", nodes: []*corev1.Node{a, b},
			services: []*corev1.Service{
				balancer("six", 1, 80, func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }),
				balancer("both", 2, 81, func(s *corev1.Service) {
					s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
				}),
			},
			want: []string{"six fd00::2", "both 10.0.0.1,10.0.0.2,fd00::2"},
		},
		{
			name: "external addresses count, too", services: []*corev1.Service{balancer("web", 1, 80, nil)},
			nodes: []*corev1.Node{node("c", func(n *corev1.Node) {
				n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}, corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: "c.example.com"})
			}, "10.0.0.3")},
			want: []string{"web 10.0.0.3,192.0.2.1"},
		},
		{
			name: "nodes that are not ready or excluded have no part", services: []*corev1.Service{balancer("web", 1, 80, nil)},
			nodes: []*corev1.Node{a, node("c", notReady, "10.0.0.3"), node("d", excluded, "10.0.0.4")},
			want:  []string{"web 10.0.0.1"},
		},
		{
			name: "if no node is ready all are used, but excluded ones", services: []*corev1.Service{balancer("web", 1, 80, nil)},
			nodes: []*corev1.Node{node("c", notReady, "10.0.0.3"), node("d", excluded, "10.0.0.4")},
			want:  []string{"web 10.0.0.3"},
		},
		{name: "without nodes there is no address, and no problem", services: []*corev1.Service{balancer("web", 1, 80, nil)}, want: []string{"web "}},
		{
			name: "with the policy Local only nodes with a ready endpoint", nodes: []*corev1.Node{a, b},
			services: []*corev1.Service{balancer("web", 1, 80, local)},
			slices:   []*discoveryv1.EndpointSlice{endpoint("web", "a", false), endpoint("web", "b", true), endpoint("other", "a", true), headless},
			want:     []string{"web 10.0.0.2"},
		},
		{
			name: "a requested address", nodes: []*corev1.Node{a, b},
			services: []*corev1.Service{
				balancer("web", 1, 80, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.0.0.2" }),
				balancer("far", 2, 81, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.9.9.9" }),
				balancer("name", 3, 82, func(s *corev1.Service) { s.Spec.LoadBalancerIP = "b" }),
				balancer("six", 4, 83, func(s *corev1.Service) {
					s.Spec.LoadBalancerIP, s.Spec.IPFamilies = "FD00:0::2", []corev1.IPFamily{corev1.IPv6Protocol}
				}),
			},
			want: []string{"web 10.0.0.2", "far : spec.loadBalancerIP: 10.9.9.9 is not an address of a node that can serve it: remove the field, or choose an address of a node",
				"name : spec.loadBalancerIP: b is not an address of a node that can serve it: remove the field, or choose an address of a node", "six fd00::2"},
		},
	})
}

func TestServicesSharePortsOfNodes(t *testing.T) {
	a := node("a", nil, "10.0.0.1")
	testDecide(t, []decideCase{
		{
			name: "the older service gets a port", nodes: []*corev1.Node{a},
			services: []*corev1.Service{balancer("young", 2, 80, nil), balancer("old", 1, 80, nil)},
			want:     []string{"old 10.0.0.1", "young : port 80/TCP of the nodes is used by service ns/old: choose another port"},
		},
		{
			name: "a service that has its addresses keeps them", nodes: []*corev1.Node{a},
			services: []*corev1.Service{
				balancer("old", 1, 80, nil), balancer("young", 2, 80, has()),
			},
			want: []string{"young 10.0.0.1", "old : port 80/TCP of the nodes is used by service ns/young: choose another port"},
		},
		{
			name: "ports of different protocols do not conflict", nodes: []*corev1.Node{a},
			services: []*corev1.Service{balancer("tcp", 1, 53, nil), balancer("udp", 2, 53, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP })},
			want:     []string{"tcp 10.0.0.1", "udp 10.0.0.1"},
		},
		{
			name: "a service that does not get all of its ports gets none", nodes: []*corev1.Node{a},
			services: []*corev1.Service{
				balancer("old", 1, 80, nil),
				balancer("young", 2, 81, alsoAt(80)),
				balancer("youngest", 3, 81, nil),
			},
			want: []string{"old 10.0.0.1", "young : port 80/TCP of the nodes is used by service ns/old: choose another port", "youngest 10.0.0.1"},
		},
		{
			name: "node ports of other services are not given away", nodes: []*corev1.Node{a},
			services: []*corev1.Service{
				nodePort("node-port", 1, 30080), balancer("web", 2, 30080, nil), balancer("own", 3, 30081, func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30081 }),
			},
			want: []string{"web : port 30080/TCP of the nodes is a node port of service ns/node-port: choose another port", "own 10.0.0.1"},
		},
		{
			name: "nor are those of health checks", nodes: []*corev1.Node{a},
			services: []*corev1.Service{
				balancer("local", 1, 80, func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 31000 }), balancer("web", 2, 31000, nil),
				balancer("udp", 3, 31000, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }),
			},
			want: []string{"local 10.0.0.1", "web : port 31000/TCP of the nodes is the health check node port of service ns/local: choose another port", "udp 10.0.0.1"},
		},
		{
			name: "reserved ports are not given away", nodes: []*corev1.Node{a}, services: []*corev1.Service{balancer("ssh", 1, 22, nil)},
			want: []string{"ssh : port 22/TCP of the nodes is reserved for their own programs (--host-load-balancer-reserved-ports): choose another port"},
		},
		{
			name: "nor are those of the nodes' agents", nodes: []*corev1.Node{a, node("b", agentAt(10350), "10.0.0.2"), node("c", func(n *corev1.Node) { agentAt(10450)(n); excluded(n) }, "10.0.0.3")},
			services: []*corev1.Service{
				balancer("agent", 1, 10350, func(s *corev1.Service) {
					s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.0.0.1"}, {IP: "10.0.0.2"}}
				}),
				balancer("udp", 2, 10350, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }),
				balancer("excluded", 3, 10450, nil),
			},
			want: []string{"agent : port 10350/TCP of the nodes is that of a node's agent: choose another port", "udp 10.0.0.1,10.0.0.2", "excluded 10.0.0.1,10.0.0.2"},
		},
	})
}

func TestAPortStaysWithTheServiceThatHadItFirst(t *testing.T) {
	a := node("a", nil, "10.0.0.1")
	testDecide(t, []decideCase{
		{
			name: "a newer node port does not take that of a load balancer", nodes: []*corev1.Node{a},
			services: []*corev1.Service{balancer("web", 1, 30080, has(30080)), nodePort("node-port", 2, 30080)},
			want:     []string{"web 10.0.0.1", "node-port is told: port 30080/TCP of the nodes, a node port of this service, is used by the load balancer of service ns/web, which had it first: choose another port"},
		},
		{
			name: "nor does a port of health checks, with a load balancer of an earlier release", nodes: []*corev1.Node{a},
			services: []*corev1.Service{balancer("web", 1, 31000, has()), balancer("local", 2, 80, func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 31000 })},
			want:     []string{"web 10.0.0.1", "local is told: port 31000/TCP of the nodes, the health check node port of this service, is used by the load balancer of service ns/web, which had it first: choose another port", "local 10.0.0.1"},
		},
		{
			name: "an older service whose port changes does not take a node port", nodes: []*corev1.Node{a},
			services: []*corev1.Service{balancer("old", 1, 30080, has(80)), nodePort("node-port", 2, 30080)},
			want:     []string{"old : port 30080/TCP of the nodes is a node port of service ns/node-port: choose another port"},
		},
		{
			name: "nor the port of a younger load balancer", nodes: []*corev1.Node{a},
			services: []*corev1.Service{balancer("old", 1, 443, has(80)), balancer("young", 2, 443, has(443))},
			want:     []string{"young 10.0.0.1", "old : port 443/TCP of the nodes is used by service ns/young: choose another port"},
		},
		{
			name: "a service that gets another port keeps those that it has", nodes: []*corev1.Node{a},
			services: []*corev1.Service{balancer("old", 1, 80, nil), balancer("young", 2, 80, both(has(80), alsoAt(81)))},
			want:     []string{"young 10.0.0.1", "old : port 80/TCP of the nodes is used by service ns/young: choose another port"},
		},
		{
			name: "a load balancer without addresses takes no node port", nodes: []*corev1.Node{a},
			services: []*corev1.Service{balancer("web", 1, 30080, nil), nodePort("node-port", 2, 30080)},
			want:     []string{"web : port 30080/TCP of the nodes is a node port of service ns/node-port: choose another port"},
		},
	})
}

type decideCase struct {
	name     string
	services []*corev1.Service
	nodes    []*corev1.Node
	slices   []*discoveryv1.EndpointSlice
	want     []string
}

func testDecide(t *testing.T, cases []decideCase) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			s := &state{services: test.services, nodes: test.nodes, slices: test.slices, reserved: []int{22}}
			var got []string
			for _, r := range s.decide() {
				line := r.service.Name + " " + strings.Join(r.addresses, ",")
				if r.problem != "" {
					line += ": " + r.problem
				}
				got = append(got, line)
				for _, hidden := range r.hidden {
					got = append(got, hidden.service.Name+" is told: "+hidden.message)
				}
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestReservedPortsAreValidated(t *testing.T) {
	o := options{reserved: []int{22, 0, 70000}}
	if errs := o.validate(); len(errs) != 2 {
		t.Errorf("got %v", errs)
	}
}

func TestAnotherPortOfANodesAgentIsMoreThanAHeartbeat(t *testing.T) {
	for number, want := range map[int32]bool{10250: false, 10350: true} {
		update := event.UpdateEvent{ObjectOld: node("a", agentAt(10250)), ObjectNew: node("a", agentAt(number))}
		if got := nodeChanged(update); got != want {
			t.Errorf("from 10250 to %d: got %v, want %v", number, got, want)
		}
	}
}
