//go:build linux

package ruleset_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/proxy/ruleset"
	"svc.dev/svc/svclet/services"
)

// The owner's endpoints and source ranges decide about an address, not those of another service.
func TestOnlyTheOwnerLeadsToAnAddressAndRestrictsIt(t *testing.T) {
	// part is that of a service with an address of a load balancer; ranges and endpoints may be empty.
	part := func(name string, created int64, ranges, endpoint string) ruleset.Part {
		s := ruleset.Service{Service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.Unix(created, 0)},
			Spec: corev1.ServiceSpec{
				ClusterIP: "10.96.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, LoadBalancerSourceRanges: strings.Fields(ranges),
				Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}},
			},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}}},
		}}
		if endpoint != "" {
			s.Slices = []*discoveryv1.EndpointSlice{{
				AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{endpoint}}},
			}}
		}
		return ruleset.PartOf(s, corev1.IPv4Protocol, ruleset.Place{})
	}
	none := ruleset.Part{}
	ready, closed := part("old", 5, "", "10.244.0.5"), part("old", 5, "", "")
	restricted, young := part("old", 5, "198.51.100.0/24", "10.244.0.5"), part("young", 20, "192.0.2.0/24", "10.244.0.6")
	open, last := part("young", 20, "", "10.244.0.6"), part("last", 30, "", "")
	for _, test := range []struct {
		rule          string
		before, after []ruleset.Part // of each service
		want          []string       // the maps of the keys, and the services of their verdicts
		conflicts     int
	}{
		{"the owner has endpoints, another one source ranges", []ruleset.Part{ready, none}, []ruleset.Part{ready, young}, []string{"external-ips old", "node-ports old"}, 2},
		{"the owner has no endpoints, another one comes", []ruleset.Part{closed, none}, []ruleset.Part{closed, open}, []string{"closed-external-ips", "closed-node-ports"}, 2},
		{"the owner loses its endpoints", []ruleset.Part{restricted, open}, []ruleset.Part{closed, open}, []string{"closed-external-ips", "closed-node-ports"}, 0},
		{"the owner gets endpoints", []ruleset.Part{closed, open}, []ruleset.Part{restricted, open}, []string{"external-ips old", "guarded-ips old", "node-ports old"}, 0},
		{"the owner goes, and the next one has source ranges", []ruleset.Part{closed, young}, []ruleset.Part{none, young}, []string{"external-ips young", "guarded-ips young", "node-ports young"}, 0},
		{"the owner goes, and the next one has no endpoints", []ruleset.Part{restricted, last}, []ruleset.Part{none, last}, []string{"closed-external-ips", "closed-node-ports"}, 0},
		{"the owner gets source ranges", []ruleset.Part{ready, open}, []ruleset.Part{restricted, open}, []string{"external-ips old", "guarded-ips old", "node-ports old"}, 0},
		{"all go", []ruleset.Part{restricted, young}, []ruleset.Part{none, none}, nil, 0},
	} {
		fake, table, owners, choices := knftables.NewFake(knftables.IPv4Family, "svc0"), ruleset.Table{Family: corev1.IPv4Protocol}, ruleset.Owners{}, ruleset.Choices{}
		var conflicts []ruleset.Conflict
		change := func(from func(i int) ruleset.Part, to []ruleset.Part) {
			tx := fake.NewTransaction()
			if conflicts == nil {
				choices, _ = table.Create(tx)
			}
			var changes []ruleset.Change
			for i, p := range to {
				changes = append(changes, ruleset.Change{Before: from(i), After: p})
			}
			conflicts = append([]ruleset.Conflict{}, table.Change(tx, owners, choices, &ruleset.Stale{}, changes...)...)
			if err := fake.Run(context.Background(), tx); err != nil {
				t.Errorf("%s: %v", test.rule, err)
			}
		}
		change(func(int) ruleset.Part { return none }, test.before)
		change(func(i int) ruleset.Part { return test.before[i] }, test.after)
		got := keysOf(fake.Dump())
		for key := range owners {
			if key.Map == "hairpins" {
				delete(owners, key)
			}
		}
		if slices.Sort(got); !slices.Equal(got, test.want) || len(conflicts) != test.conflicts || len(owners) != len(got)-strings.Count(strings.Join(got, " "), "guarded") {
			t.Errorf("%s: %q, want %q; conflicts %v, owners %v", test.rule, got, test.want, conflicts, owners)
		}
	}
}

// keysOf returns the sets of the keys in a table, and the services that these are of: old has the
// endpoint 10.244.0.5 and the source range 198.51.100.0/24, young 10.244.0.6 and 192.0.2.0/24.
func keysOf(dump string) []string {
	var keys []string
	with := map[string]string{"external-ips": "tcp-external-endpoints", "node-ports": "tcp-node-port-endpoints", "guarded-ips": "source-ranges-of-24"}
	for line := range strings.Lines(dump) {
		rest, _ := strings.CutPrefix(line, "add element ip svc0 ")
		name, _, _ := strings.Cut(rest, " ")
		if rest == line || name == "pod-ranges" || name == "hairpins" || strings.Contains(name, "endpoints") || strings.Contains(name, "-of-") {
			continue
		}
		_, value, _ := strings.Cut(dump, "add element ip svc0 "+with[name]+" ")
		value, _, _ = strings.Cut(value, "\n")
		for of, has := range map[string][2]string{"old": {": 10.244.0.5 ", "{ 198.51.100.0 "}, "young": {": 10.244.0.6 ", "{ 192.0.2.0 "}} {
			if strings.Contains(value, has[0]) || strings.Contains(value, has[1]) {
				name += " " + of
			}
		}
		keys = append(keys, name)
	}
	return keys
}

// source returns the range of the sources of the service with a name.
func source(name string) string {
	return map[string]string{"a": "192.0.2.0", "b": "203.0.113.0", "old": "198.51.100.0"}[name]
}

// withoutEndpoints is the part of a service of which only its source ranges are in the table.
func withoutEndpoints(name string, created int64) ruleset.Part {
	return ruleset.PartOf(ruleset.Service{Service: &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.Unix(created, 0)},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, ExternalIPs: []string{"203.0.113.9"},
			LoadBalancerSourceRanges: []string{source(name) + "/24"}, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}}},
	}}, corev1.IPv4Protocol, ruleset.Place{})
}

func TestTheOldestServiceOwnsAKeyThatSeveralWant(t *testing.T) {
	const key = "203.0.113.9 . tcp . 80"
	add := func(p ruleset.Part) ruleset.Change { return ruleset.Change{After: p} }
	remove := func(p ruleset.Part) ruleset.Change { return ruleset.Change{Before: p} }
	a, b, old := withoutEndpoints("a", 10), withoutEndpoints("b", 10), withoutEndpoints("old", 5)
	for _, test := range []struct {
		rule    string
		before  []ruleset.Change
		changes []ruleset.Change
		want    string // what has the key
		// conflict are the services of the conflict, in order.
		conflict []string
	}{
		{"one service", nil, []ruleset.Change{add(b)}, "b", nil},
		{"of the same age, the first by name", nil, []ruleset.Change{add(b), add(a)}, "a", []string{"a", "b"}},
		{"an older one takes it", []ruleset.Change{add(a)}, []ruleset.Change{add(old)}, "old", []string{"old", "a"}},
		{"a younger one does not", []ruleset.Change{add(old)}, []ruleset.Change{add(a)}, "old", []string{"old", "a"}},
		{"the next one has it when the owner goes", []ruleset.Change{add(a), add(b), add(old)}, []ruleset.Change{remove(old)}, "a", nil},
		{"another than the owner goes", []ruleset.Change{add(a), add(b)}, []ruleset.Change{remove(b)}, "a", nil},
		{"all go", []ruleset.Change{add(a), add(b)}, []ruleset.Change{remove(a), remove(b)}, "", nil},
		{"one comes and the owner goes", []ruleset.Change{add(old)}, []ruleset.Change{add(b), remove(old)}, "b", nil},
		{"a conflict is reported once", []ruleset.Change{add(a), add(b)}, []ruleset.Change{{Before: b, After: b}}, "a", nil},
		{"the owner is created again", []ruleset.Change{add(old), add(a)}, []ruleset.Change{{Before: old, After: withoutEndpoints("old", 20)}}, "a", nil},
	} {
		fake, table, owners := knftables.NewFake(knftables.IPv4Family, "svc0"), ruleset.Table{Family: corev1.IPv4Protocol}, ruleset.Owners{}
		tx := fake.NewTransaction()
		choices, _ := table.Create(tx)
		table.Change(tx, owners, choices, &ruleset.Stale{}, test.before...)
		if err := fake.Run(context.Background(), tx); err != nil {
			t.Fatal(err)
		}
		tx = fake.NewTransaction()
		conflicts := table.Change(tx, owners, choices, &ruleset.Stale{}, test.changes...)
		if err := fake.Run(context.Background(), tx); err != nil {
			t.Errorf("%s: %v", test.rule, err)
		}
		var of string
		for line := range strings.Lines(fake.Dump()) {
			if rest, found := strings.CutPrefix(line, "add element ip svc0 source-ranges-of-24 { "); found {
				of += rest
			}
		}
		want := ""
		if test.want != "" {
			want = source(test.want) + " . " + key + " }\n"
		}
		if of != want {
			t.Errorf("%s: the key has %q, want that of %q", test.rule, of, test.want)
		}
		var got []string
		for _, c := range conflicts {
			if c.Key == (ruleset.Key{Map: "external-ips", Fields: key}) {
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

// A pod that is an endpoint of several services is a hairpin as long as it is one of any.
func TestServicesShareTheHairpinOfAnEndpoint(t *testing.T) {
	fake, table, owners, choices := knftables.NewFake(knftables.IPv4Family, "svc0"), ruleset.Table{Family: corev1.IPv4Protocol}, ruleset.Owners{}, ruleset.Choices{}
	part := func(name string) ruleset.Part {
		return ruleset.Part{
			Service: services.Key{Namespace: "shop", Name: name},
			Elements: map[ruleset.Key]ruleset.Element{
				{Map: "hairpins", Fields: "10.244.0.5 . 10.244.0.5"}: {},
			},
		}
	}
	a, b := part("a"), part("b")
	for i, step := range []struct {
		change ruleset.Change
		there  bool
	}{{ruleset.Change{After: a}, true}, {ruleset.Change{After: b}, true}, {ruleset.Change{Before: a}, true}, {ruleset.Change{Before: b}, false}} {
		tx := fake.NewTransaction()
		if i == 0 {
			choices, _ = table.Create(tx)
		}
		for _, c := range table.Change(tx, owners, choices, &ruleset.Stale{}, step.change) {
			if c.Key.Map == "hairpins" {
				t.Errorf("step %d: conflict %v", i, c)
			}
		}
		if err := fake.Run(context.Background(), tx); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
		if there := strings.Contains(fake.Dump(), "hairpins { 10.244.0.5 . 10.244.0.5 }"); there != step.there {
			t.Errorf("step %d: the hairpin is there: %t", i, there)
		}
	}
}
