package ruleset_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/internal/golden"
)

// peerSets writes a policy for the pod a of the namespace x, which allows ingress of each of the
// peers, and returns the table with their sets.
func peerSets(t *testing.T, peers ...networkingv1.NetworkPolicyPeer) (table *knftables.FakeTable, sets []string) {
	t.Helper()
	m := newMatrix(t)
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}}
	for _, peer := range peers {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{peer}})
	}
	m.model.SetPolicy(p)
	tx := m.fakes["IPv4"].NewTransaction()
	m.model.Change(families["IPv4"], tx)
	m.run("IPv4", tx)
	table = m.fakes["IPv4"].Table
	for name := range table.Sets {
		if strings.HasPrefix(name, "peers-") {
			sets = append(sets, name)
		}
	}
	return table, sets
}

// Selectors whose hashes begin with the same 40 bits are found within a second.
func TestPeersWhoseHashesBeginAlikeHaveSetsOfTheirOwn(t *testing.T) {
	var peers []networkingv1.NetworkPolicyPeer
	for _, app := range []string{"a333506", "a1051924"} {
		peers = append(peers, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		})
	}
	if _, sets := peerSets(t, peers...); len(sets) != 2 {
		t.Errorf("the sets of two peers are %v", sets)
	}
}

// The API server accepts no invalid selector, but may have stored one before it was validated.
func TestAnInvalidSelectorSelectsNothingBesideOneOfEverything(t *testing.T) {
	all, invalid := &metav1.LabelSelector{}, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}
	table, sets := peerSets(t,
		networkingv1.NetworkPolicyPeer{PodSelector: invalid}, networkingv1.NetworkPolicyPeer{PodSelector: all},
		networkingv1.NetworkPolicyPeer{NamespaceSelector: invalid}, networkingv1.NetworkPolicyPeer{NamespaceSelector: all},
		networkingv1.NetworkPolicyPeer{NamespaceSelector: all, PodSelector: invalid})
	got := map[string]int{}
	for _, name := range sets {
		got[*table.Sets[name].Comment] = len(table.Sets[name].Elements)
	}
	want := map[string]int{
		"no pods in namespace x": 0, "all pods in namespace x": 3,
		"all pods in no namespaces": 0, "all pods in all namespaces": 9, "no pods in all namespaces": 0,
	}
	if !maps.Equal(got, want) {
		t.Errorf("the numbers of pods in sets are %v, want %v", got, want)
	}
}

// nft accepts names of up to 127 characters.
func TestNamesAreNotLongerThanNFTAccepts(t *testing.T) {
	s, namespace := newScript(t), strings.Repeat("n", 63)
	for _, c := range []golden.Command{
		{Name: "pod", Args: []string{namespace + "/web"}, Body: "spec: {nodeName: here}\nstatus: {podIPs: [{ip: 10.244.0.5}]}"},
		{Name: "policy", Args: []string{namespace + "/" + strings.Repeat("p", 253)}, Body: "podSelector: {}\ningress: [{from: [{podSelector: {}}]}]"},
		{Name: "change"},
	} {
		s.do(c)
	}
	table := s.fakes["IPv4"].Table
	names := slices.Concat(slices.Collect(maps.Keys(table.Chains)), slices.Collect(maps.Keys(table.Sets)))
	long := 0
	for _, name := range names {
		if len(name) > 127 {
			t.Errorf("the name %s has %d characters", name, len(name))
		}
		if strings.Contains(name, namespace) {
			long++
		}
	}
	if long != 2 {
		t.Errorf("the chain and the set of the policy are not among %v", names)
	}
}
