//go:build linux

package ruleset_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/proxy/ruleset"
)

func TestTheOldestServiceOwnsAKeyThatSeveralWant(t *testing.T) {
	const key = "203.0.113.9 . tcp . 80"
	// part is that of a service without endpoints, whose verdict is that of its policy.
	part := func(name string, created int64) ruleset.Part {
		return ruleset.PartOf(ruleset.Service{Service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.Unix(created, 0)},
			Spec: corev1.ServiceSpec{
				ClusterIP: "10.96.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, ExternalIPs: []string{"203.0.113.9"},
				LoadBalancerSourceRanges: []string{"198.51.100.0/24"}, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
			},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}}},
		}}, corev1.IPv4Protocol, ruleset.Place{})
	}
	add := func(p ruleset.Part) ruleset.Change { return ruleset.Change{After: p} }
	remove := func(p ruleset.Part) ruleset.Change { return ruleset.Change{Before: p} }
	a, b, old := part("a", 10), part("b", 10), part("old", 5)
	for _, test := range []struct {
		rule    string
		before  []ruleset.Change
		changes []ruleset.Change
		want    string // what has the key
		// conflict are the services of the conflict, in order.
		conflict []string
	}{
		{"one service", nil, []ruleset.Change{add(b)}, "/b/", nil},
		{"of the same age, the first by name", nil, []ruleset.Change{add(b), add(a)}, "/a/", []string{"a", "b"}},
		{"an older one takes it", []ruleset.Change{add(a)}, []ruleset.Change{add(old)}, "/old/", []string{"old", "a"}},
		{"a younger one does not", []ruleset.Change{add(old)}, []ruleset.Change{add(a)}, "/old/", []string{"old", "a"}},
		{"the next one has it when the owner goes", []ruleset.Change{add(a), add(b), add(old)}, []ruleset.Change{remove(old)}, "/a/", nil},
		{"another than the owner goes", []ruleset.Change{add(a), add(b)}, []ruleset.Change{remove(b)}, "/a/", nil},
		{"all go", []ruleset.Change{add(a), add(b)}, []ruleset.Change{remove(a), remove(b)}, "", nil},
		{"one comes and the owner goes", []ruleset.Change{add(old)}, []ruleset.Change{add(b), remove(old)}, "/b/", nil},
		{"a conflict is reported once", []ruleset.Change{add(a), add(b)}, []ruleset.Change{{Before: b, After: b}}, "/a/", nil},
		{"the owner is created again", []ruleset.Change{add(old), add(a)}, []ruleset.Change{{Before: old, After: part("old", 20)}}, "/a/", nil},
	} {
		fake, table, owners := knftables.NewFake(knftables.IPv4Family, "svc0"), ruleset.Table{Family: corev1.IPv4Protocol}, ruleset.Owners{}
		tx := fake.NewTransaction()
		table.Create(tx)
		table.Change(tx, owners, &ruleset.Stale{}, test.before...)
		if err := fake.Run(context.Background(), tx); err != nil {
			t.Fatal(err)
		}
		tx = fake.NewTransaction()
		conflicts := table.Change(tx, owners, &ruleset.Stale{}, test.changes...)
		if err := fake.Run(context.Background(), tx); err != nil {
			t.Errorf("%s: %v", test.rule, err)
		}
		var verdict string
		for line := range strings.Lines(fake.Dump()) {
			if strings.HasPrefix(line, "add element ip svc0 guarded-ips { "+key+" : ") {
				verdict += line
			}
		}
		if (verdict == "") != (test.want == "") || strings.Count(verdict, "\n") > 1 || !strings.Contains(verdict, test.want) {
			t.Errorf("%s: the key has %q, want that of %q", test.rule, verdict, test.want)
		}
		var got []string
		for _, c := range conflicts {
			if c.Key == (ruleset.Key{Map: "guarded-ips", Fields: key}) {
				for _, k := range c.Services {
					got = append(got, k.Name)
				}
			}
		}
		if !slices.Equal(got, test.conflict) {
			t.Errorf("%s: the conflict is between %q", test.rule, got)
		}
		// No key is there twice, and none is added before it is deleted.
		last := map[string]int{}
		for i, line := range strings.Split(tx.String(), "\n") {
			if rest, found := strings.CutPrefix(line, "delete element ip svc0 "); found {
				last[strings.TrimSuffix(rest, " }")] = i
			}
		}
		for i, line := range strings.Split(tx.String(), "\n") {
			if rest, found := strings.CutPrefix(line, "add element ip svc0 "); found {
				element, _, _ := strings.Cut(rest, " : ")
				if last[element] > i {
					t.Errorf("%s: %s is added before it is deleted", test.rule, element)
				}
			}
		}
	}
}
