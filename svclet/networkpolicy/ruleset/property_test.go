package ruleset_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/networkpolicy/ruleset"
)

// TestTheRulesMeanWhatThePoliciesSay changes random policies, namespaces and pods, and
// compares the verdicts of the written rules with those of the API's semantics, for
// connections between pods and with other addresses.
func TestTheRulesMeanWhatThePoliciesSay(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 40 {
				w.change()
				if w.random.IntN(3) > 0 {
					w.write()
				}
				if w.random.IntN(6) == 0 {
					w.compare()
				}
			}
			w.compare()
		})
	}
}

// world is a small cluster, with the model of a node and its tables.
type world struct {
	*script
	random     *rand.Rand
	namespaces map[string]map[string]string
	pods       map[types.UID]*corev1.Pod
	policies   map[string]*networkingv1.NetworkPolicy
	selectors  map[*metav1.LabelSelector]labels.Selector
}

func newWorld(t *testing.T, seed uint64) *world {
	return &world{
		script: newScript(t), random: rand.New(rand.NewPCG(seed, 0)),
		namespaces: map[string]map[string]string{}, pods: map[types.UID]*corev1.Pod{}, policies: map[string]*networkingv1.NetworkPolicy{},
		selectors: map[*metav1.LabelSelector]labels.Selector{},
	}
}

func one[T any](w *world, of ...T) T { return of[w.random.IntN(len(of))] }

func (w *world) labels() map[string]string {
	all := map[string]string{}
	for _, key := range []string{"app", "team"} {
		if value := one(w, "", "a", "b"); value != "" {
			all[key] = value
		}
	}
	return all
}

func (w *world) selector() *metav1.LabelSelector {
	switch w.random.IntN(4) {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		operator := one(w, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn)
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: operator, Values: []string{"a", "c"}}}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{one(w, "app", "team"): one(w, "a", "b")}}
}

// change changes one object.
func (w *world) change() {
	namespace := one(w, "x", "y", "z")
	switch w.random.IntN(6) {
	case 0:
		w.changeNamespace(namespace)
	case 1, 2, 3:
		w.changePod(namespace)
	default:
		w.changePolicy(namespace)
	}
}

func (w *world) changeNamespace(name string) {
	if w.random.IntN(5) == 0 {
		delete(w.namespaces, name)
		w.model.RemoveNamespace(name)
		return
	}
	w.namespaces[name] = w.labels()
	w.model.SetNamespace(name, w.namespaces[name])
}

func (w *world) changePod(namespace string) {
	number := w.random.IntN(4)
	uid := types.UID(fmt.Sprintf("%s/%d", namespace, number))
	if w.random.IntN(5) == 0 {
		delete(w.pods, uid)
		w.model.RemovePod(uid)
		return
	}
	p := &corev1.Pod{}
	p.Namespace, p.Labels = namespace, w.labels()
	// A pod's node does not change.
	p.Spec.NodeName = []string{"here", "there"}[number%2]
	p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{
		{Name: one(w, "", "web", "dns"), ContainerPort: one[int32](w, 80, 85), Protocol: one(w, "", corev1.ProtocolTCP)},
		{Name: one(w, "", "web", "dns"), ContainerPort: one[int32](w, 53, 80), Protocol: corev1.ProtocolUDP},
	}}}
	third := int(namespace[0] - 'x')
	for _, text := range []string{fmt.Sprintf("10.0.%d.%d", third, number), fmt.Sprintf("fd00::%d:%d", third, number)} {
		if w.random.IntN(6) > 0 {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: text})
		}
	}
	w.pods[uid] = p
	pod, _ := ruleset.PodOf(p, "here")
	w.model.SetPod(uid, pod)
}

func (w *world) changePolicy(namespace string) {
	name := one(w, "p", "q", "r")
	if w.random.IntN(4) == 0 {
		delete(w.policies, namespace+"/"+name)
		w.model.RemovePolicy(namespace, name)
		return
	}
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name, p.Spec.PodSelector = namespace, name, *w.selector()
	p.Spec.PolicyTypes = one(w, nil, []networkingv1.PolicyType{"Ingress"}, []networkingv1.PolicyType{"Egress"}, []networkingv1.PolicyType{"Ingress", "Egress"})
	for range w.random.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: w.peers(), Ports: w.ports()})
	}
	for range w.random.IntN(3) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: w.peers(), Ports: w.ports()})
	}
	w.policies[namespace+"/"+name] = p
	w.model.SetPolicy(p)
}

func (w *world) peers() []networkingv1.NetworkPolicyPeer {
	var all []networkingv1.NetworkPolicyPeer
	for range w.random.IntN(4) {
		var p networkingv1.NetworkPolicyPeer
		switch w.random.IntN(5) {
		case 0:
			p.PodSelector = w.selector()
		case 1:
			p.NamespaceSelector = w.selector()
		case 2:
			p.PodSelector, p.NamespaceSelector = w.selector(), w.selector()
		case 3:
			p.IPBlock = &networkingv1.IPBlock{
				CIDR:   one(w, "0.0.0.0/0", "10.0.0.0/8", "10.0.1.0/24", "10.0.1.2/31"),
				Except: one(w, nil, []string{"10.0.1.2/32"}, []string{"10.0.1.0/31", "10.0.1.0/32", "10.0.1.3/32"}),
			}
		default:
			p.IPBlock = &networkingv1.IPBlock{CIDR: one(w, "::/0", "fd00::/16", "fd00::1:0/112"), Except: one(w, nil, []string{"fd00::1:1/128"})}
		}
		all = append(all, p)
	}
	return all
}

func (w *world) ports() []networkingv1.NetworkPolicyPort {
	var all []networkingv1.NetworkPolicyPort
	for range w.random.IntN(4) {
		p := networkingv1.NetworkPolicyPort{Protocol: one(w, nil, ptr.To(corev1.ProtocolTCP), ptr.To(corev1.ProtocolUDP), ptr.To(corev1.ProtocolSCTP))}
		switch w.random.IntN(5) {
		case 0:
			p.Port = ptr.To(intstr.FromString(one(w, "web", "dns")))
		case 1:
			p.Port, p.EndPort = ptr.To(intstr.FromInt32(one[int32](w, 50, 79, 80))), ptr.To(one[int32](w, 80, 85))
		case 2:
		default:
			p.Port = ptr.To(intstr.FromInt32(one[int32](w, 53, 80, 85)))
		}
		all = append(all, p)
	}
	return all
}

// write writes the changes. The tables must be those that a new model would write.
func (w *world) write() {
	w.t.Helper()
	fresh := w.rebuilt()
	for name, family := range families {
		tx := w.fakes[name].NewTransaction()
		w.model.Change(family, tx)
		w.run(name, tx)
		if got, want := sorted(w.fakes[name].Dump()), sorted(fresh.fakes[name].Dump()); got != want {
			w.t.Fatalf("after changes:\n%s\nwritten in full:\n%s", got, want)
		}
	}
}

// compare writes the changes, and compares the verdict for each connection.
func (w *world) compare() {
	w.t.Helper()
	w.write()
	sides := []side{}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		for _, ip := range w.pods[uid].Status.PodIPs {
			sides = append(sides, side{netip.MustParseAddr(ip.IP), w.pods[uid]})
		}
	}
	for _, text := range []string{"10.0.1.9", "192.0.2.1", "fd00::1:9", "2001:db8::1"} {
		sides = append(sides, side{netip.MustParseAddr(text), nil})
	}
	rules := map[string]*evaluator{}
	for name, fake := range w.fakes {
		rules[name] = newEvaluator(w.t, fake.Table)
	}
	for _, from := range sides {
		for _, to := range sides {
			if from.address.Is6() != to.address.Is6() {
				continue
			}
			for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP, "ICMP"} {
				for _, port := range []int32{53, 79, 80, 85, 443} {
					w.compareOne(rules, connection{from, to, protocol, port})
				}
			}
		}
	}
}

// sorted sorts lines: the elements of a set have no order. The rules of a chain do, which
// the verdicts show.
func sorted(dump string) string { return strings.Join(slices.Sorted(strings.Lines(dump)), "") }

func (w *world) compareOne(rules map[string]*evaluator, c connection) {
	w.t.Helper()
	name := "IPv4"
	if c.from.address.Is6() {
		name = "IPv6"
	}
	if got, want := rules[name].allows(c), w.allowed(c); got != want {
		w.t.Fatalf("%s: the rules allow it: %v, the policies: %v\n%s", c, got, want, w.fakes[name].Dump())
	}
}

// rebuilt returns a script with the same objects, written at once.
func (w *world) rebuilt() *script {
	fresh := newScript(w.t)
	for name, labels := range w.namespaces {
		fresh.model.SetNamespace(name, labels)
	}
	for uid, p := range w.pods {
		pod, _ := ruleset.PodOf(p, "here")
		fresh.model.SetPod(uid, pod)
	}
	for _, p := range w.policies {
		fresh.model.SetPolicy(p)
	}
	for name, family := range families {
		fresh.fakes[name] = knftables.NewFake(family, "svc0-policies")
		tx := fresh.fakes[name].NewTransaction()
		fresh.model.Create(family, tx)
		fresh.run(name, tx)
	}
	return fresh
}
