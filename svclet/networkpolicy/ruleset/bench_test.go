package ruleset_test

import (
	"fmt"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/networkpolicy/ruleset"
)

// BenchmarkOnePodChanges changes a pod of another node in a cluster of 10,000 pods in 100
// namespaces, each with a policy that selects a pod of this node.
func BenchmarkOnePodChanges(b *testing.B) {
	model := ruleset.NewModel("")
	pod := func(i int, app string) {
		model.SetPod(types.UID(fmt.Sprint(i)), ruleset.Pod{
			Namespace: fmt.Sprintf("n%d", i%100), Labels: map[string]string{"app": app}, Local: i < 100,
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i % 250)})},
		})
	}
	for i := range 100 {
		namespace := fmt.Sprintf("n%d", i)
		model.SetNamespace(namespace, map[string]string{"team": fmt.Sprint(i % 10)})
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}, {NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "1"}}},
		}}}
		model.SetPolicy(p)
	}
	for i := range 10_000 {
		pod(i, "a")
	}
	fake := knftables.NewFake(knftables.IPv4Family, "svc0-policies")
	model.Create(knftables.IPv4Family, fake.NewTransaction())
	operations := 0
	for i := 0; b.Loop(); i++ {
		pod(5_000, []string{"a", "b"}[i%2])
		tx := fake.NewTransaction()
		model.Change(knftables.IPv4Family, tx)
		operations += tx.NumOperations()
	}
	b.ReportMetric(float64(operations)/float64(b.N), "operations/op")
}
