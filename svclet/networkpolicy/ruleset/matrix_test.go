package ruleset_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/svclet/networkpolicy/ruleset"
)

const tcp, udp = corev1.ProtocolTCP, corev1.ProtocolUDP

// inX reports whether the pod is of the namespace x.
func inX(pod string) bool { return strings.HasPrefix(pod, "x/") }

// matrixCase are policies of the namespace x, and the connections that they allow.
type matrixCase struct {
	rule     string
	policies []string
	allowed  func(from, to string, protocol corev1.Protocol, port int32) bool
}

func TestMatrixOfPeers(t *testing.T) {
	testMatrix(t, []matrixCase{
		{"no policy", nil, func(string, string, corev1.Protocol, int32) bool { return true }},
		{"deny ingress of a namespace", []string{"{podSelector: {}, policyTypes: [Ingress]}"},
			func(_, to string, _ corev1.Protocol, _ int32) bool { return !inX(to) }},
		{"deny egress of a namespace", []string{"{podSelector: {}, policyTypes: [Egress]}"},
			func(from, _ string, _ corev1.Protocol, _ int32) bool { return !inX(from) }},
		{"deny both", []string{"{podSelector: {}, policyTypes: [Ingress, Egress]}"},
			func(from, to string, _ corev1.Protocol, _ int32) bool { return !inX(from) && !inX(to) }},
		{"an empty rule allows all ingress", []string{"{podSelector: {}, policyTypes: [Ingress]}", "{podSelector: {matchLabels: {pod: a}}, ingress: [{}]}"},
			func(_, to string, _ corev1.Protocol, _ int32) bool { return !inX(to) || to == "x/a" }},
		{"pods of the same namespace only", []string{"{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}"},
			func(from, to string, _ corev1.Protocol, _ int32) bool { return !inX(to) || inX(from) }},
		{"a pod of the same namespace, not its namesakes", []string{"{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}"},
			func(from, to string, _ corev1.Protocol, _ int32) bool { return to != "x/a" || from == "x/b" }},
		{"pods of a namespace", []string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: 'y'}}}]}]}"},
			func(from, to string, _ corev1.Protocol, _ int32) bool {
				return !inX(to) || strings.HasPrefix(from, "y/")
			}},
		{"namespaces by expressions", []string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [x, 'y']}]}}]}]}"},
			func(from, to string, _ corev1.Protocol, _ int32) bool {
				return !inX(to) || strings.HasPrefix(from, "z/")
			}},
		{"a peer is pods and namespaces", []string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: 'y'}}, podSelector: {matchLabels: {pod: a}}}]}]}"},
			func(from, to string, _ corev1.Protocol, _ int32) bool { return !inX(to) || from == "y/a" }},
		{"two peers are pods or namespaces", []string{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: 'y'}}}, {podSelector: {matchLabels: {pod: a}}}]}]}"},
			func(from, to string, _ corev1.Protocol, _ int32) bool {
				return !inX(to) || strings.HasPrefix(from, "y/") || from == "x/a"
			}},
		{"a block of addresses with an exception", []string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.1.0/24]}}]}]}"},
			func(from, to string, _ corev1.Protocol, _ int32) bool {
				return !inX(to) || !strings.HasPrefix(from, "y/")
			}},
		{"an exception does not deny what another peer allows", []string{"{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.1.0/24]}}, {namespaceSelector: {matchLabels: {ns: 'y'}}, podSelector: {matchLabels: {pod: a}}}]}]}"},
			func(from, to string, _ corev1.Protocol, _ int32) bool {
				return !inX(to) || !strings.HasPrefix(from, "y/") || from == "y/a"
			}},
	})
}

func TestMatrixOfPorts(t *testing.T) {
	testMatrix(t, []matrixCase{
		{"a port of TCP", []string{"{podSelector: {}, ingress: [{ports: [{port: 81}]}]}"},
			func(_, to string, protocol corev1.Protocol, port int32) bool {
				return !inX(to) || protocol == tcp && port == 81
			}},
		{"a port by its name and protocol", []string{"{podSelector: {}, ingress: [{ports: [{port: serve-80-udp, protocol: UDP}]}]}"},
			func(_, to string, protocol corev1.Protocol, port int32) bool {
				return !inX(to) || protocol == udp && port == 80
			}},
		{"a protocol without a port", []string{"{podSelector: {}, ingress: [{ports: [{protocol: UDP}]}]}"},
			func(_, to string, protocol corev1.Protocol, _ int32) bool { return !inX(to) || protocol == udp }},
		{"a range of ports", []string{"{podSelector: {}, ingress: [{ports: [{port: 70, endPort: 80}]}]}"},
			func(_, to string, protocol corev1.Protocol, port int32) bool {
				return !inX(to) || protocol == tcp && port == 80
			}},
		{"policies add up", []string{"{podSelector: {}, ingress: [{ports: [{port: 80}]}]}", "{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {pod: c}}}], ports: [{port: 81}]}]}"},
			func(from, to string, protocol corev1.Protocol, port int32) bool {
				return !inX(to) || protocol == tcp && (port == 80 || from == "x/c")
			}},
		{"egress by the name that the port has at the peer", []string{"{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {ns: 'y'}}}], ports: [{port: serve-80-tcp}]}]}"},
			func(from, to string, protocol corev1.Protocol, port int32) bool {
				return from != "x/a" || strings.HasPrefix(to, "y/") && protocol == tcp && port == 80
			}},
		{"egress without a peer does not open the peers' ingress", []string{"{podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress, Egress], egress: [{}]}"},
			func(_, to string, _ corev1.Protocol, _ int32) bool { return to != "x/a" }},
	})
}

// testMatrix checks which of 9 pods reach which at the ports 80 and 81 of TCP and UDP:
// exactly those that a case names. The pods a, b and c are in the namespaces x, y and z,
// with the labels pod and ns; the port 80 has the name serve-80 with its protocol.
// Afterwards, without the policies, all connections are open again.
func testMatrix(t *testing.T, cases []matrixCase) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.rule, func(t *testing.T) {
			m := newMatrix(t)
			for i, spec := range test.policies {
				m.policy(fmt.Sprint(i), spec)
			}
			m.expect(test.allowed)
			for i := range test.policies {
				m.model.RemovePolicy("x", fmt.Sprint(i))
			}
			m.expect(func(string, string, corev1.Protocol, int32) bool { return true })
		})
	}
}

// matrix is the cluster of the test, of which all pods are on this node.
type matrix struct {
	*script
	pods map[string]netip.Addr
}

func newMatrix(t *testing.T) *matrix {
	m := &matrix{newScript(t), map[string]netip.Addr{}}
	for i, namespace := range []string{"x", "y", "z"} {
		m.model.SetNamespace(namespace, map[string]string{"ns": namespace})
		for j, name := range []string{"a", "b", "c"} {
			p := &corev1.Pod{}
			p.Namespace, p.Labels, p.Spec.NodeName = namespace, map[string]string{"pod": name}, "here"
			p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{
				{Name: "serve-80-tcp", ContainerPort: 80, Protocol: corev1.ProtocolTCP}, {ContainerPort: 81, Protocol: corev1.ProtocolTCP},
				{Name: "serve-80-udp", ContainerPort: 80, Protocol: corev1.ProtocolUDP}, {ContainerPort: 81, Protocol: corev1.ProtocolUDP},
			}}}
			address := netip.AddrFrom4([4]byte{10, 0, byte(i), byte(j + 1)})
			p.Status.PodIPs = []corev1.PodIP{{IP: address.String()}}
			m.pods[namespace+"/"+name] = address
			pod, _ := ruleset.PodOf(p, "here")
			m.model.SetPod(types.UID(namespace+"/"+name), pod)
		}
	}
	return m
}

// policy adds a policy of the namespace x.
func (m *matrix) policy(name, spec string) {
	m.t.Helper()
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = "x", name
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		m.t.Fatal(err)
	}
	m.model.SetPolicy(p)
}

// expect writes the rules, and compares their verdict for each connection. A pod always
// reaches itself.
func (m *matrix) expect(allowed func(from, to string, protocol corev1.Protocol, port int32) bool) {
	m.t.Helper()
	tx := m.fakes["IPv4"].NewTransaction()
	m.model.Change(families["IPv4"], tx)
	m.run("IPv4", tx)
	all := slices.Sorted(maps.Keys(m.pods))
	rules := newEvaluator(m.t, m.fakes["IPv4"].Table)
	for _, from := range all {
		for _, to := range all {
			for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
				for _, port := range []int32{80, 81} {
					c := connection{from: side{address: m.pods[from]}, to: side{address: m.pods[to]}, protocol: protocol, port: port}
					want := from == to || allowed(from, to, protocol, port)
					if got := rules.allows(c); got != want {
						m.t.Fatalf("%s to %s, %s %d: allowed %t, want %t\n%s", from, to, protocol, port, got, want, m.fakes["IPv4"].Dump())
					}
				}
			}
		}
	}
}
