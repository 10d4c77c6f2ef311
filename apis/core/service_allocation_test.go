package core

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/apis/resource"
)

// memoryReservations is a pool in memory.
type memoryReservations map[string]resource.Owner

func (m memoryReservations) Reserve(_ context.Context, key string, owner resource.Owner) error {
	if _, ok := m[key]; ok {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pool"}, key)
	}
	m[key] = owner
	return nil
}

func (m memoryReservations) Release(_ context.Context, key string, owner resource.Owner) error {
	if m[key] == owner {
		delete(m, key)
	}
	return nil
}

func (m memoryReservations) Held(context.Context) (map[string]resource.Owner, error) {
	return maps.Clone(m), nil
}

// cluster is a server's environment with reservations in memory.
type cluster struct{ ips, ports memoryReservations }

func newCluster() *cluster { return &cluster{memoryReservations{}, memoryReservations{}} }

func (c *cluster) env(cidrs ...string) *resource.Env {
	env := &resource.Env{
		NodePorts: resource.PortRange{From: 30000, To: 30003},
		Objects:   func(schema.GroupResource) resource.Objects { return nil },
		Reservations: func(pool string) resource.Reservations {
			return map[string]memoryReservations{ServiceIPPool: c.ips, ServiceNodePortPool: c.ports}[pool]
		},
	}
	for _, cidr := range cidrs {
		env.ServiceCIDRs = append(env.ServiceCIDRs, netip.MustParsePrefix(cidr))
	}
	return env
}

// keys lists the reserved keys with their owners: "10.0.0.1=a".
func (c *cluster) keys() string {
	var keys []string
	for _, pool := range []memoryReservations{c.ips, c.ports} {
		for key, owner := range pool {
			keys = append(keys, key+"="+owner.Name)
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// service makes a service of the spec, defaulted, with a TCP port 80.
func service(name string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}
	if change != nil {
		change(s)
	}
	defaultService(s)
	return s
}

func create(t *testing.T, env *resource.Env, s *corev1.Service, dryRun bool) (func(bool), error) {
	t.Helper()
	prepareService(t.Context(), nil, s)
	if errs := validateService(s); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return beginServiceCreate(t.Context(), env, s, dryRun)
}

func mustCreate(t *testing.T, env *resource.Env, s *corev1.Service) *corev1.Service {
	t.Helper()
	finish, err := create(t, env, s, false)
	if err != nil {
		t.Fatal(err)
	}
	finish(true)
	return s
}

func update(t *testing.T, env *resource.Env, s, old *corev1.Service) (func(bool), error) {
	t.Helper()
	defaultService(s)
	prepareServiceUpdate(t.Context(), nil, s, old)
	if errs := append(validateService(s), validateServiceUpdate(s, old)...); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return beginServiceUpdate(t.Context(), env, s, old, false)
}

func nodePort(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }
func externalName(s *corev1.Service) {
	s.Spec.Type, s.Spec.ExternalName = "ExternalName", "example.com"
}
func local(s *corev1.Service) {
	s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
}
func withIP(ip string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.ClusterIP = ip }
}

func TestCreatingAServiceReservesItsAddressesAndPorts(t *testing.T) {
	testAllocations(t, []allocationCase{
		{rule: "any address", cidrs: []string{"10.0.0.0/30"}, others: memoryReservations{"10.0.0.1": {Name: "b"}},
			s: service("a", nil), want: "10.0.0.1=b 10.0.0.2=a"},
		{rule: "the address that it names", cidrs: []string{"10.0.0.0/24"}, s: service("a", withIP("10.0.0.9")), want: "10.0.0.9=a"},
		{rule: "an address of each family", cidrs: []string{"fd00::/127", "10.0.0.0/30"}, others: memoryReservations{"10.0.0.2": {Name: "b"}},
			s: service("a", func(s *corev1.Service) { s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack) }), want: "10.0.0.1=a 10.0.0.2=b fd00::1=a"},
		{rule: "nothing if it is headless", cidrs: []string{"10.0.0.0/30"}, s: service("a", withIP("None"))},
		{rule: "nothing for an external name", cidrs: []string{"10.0.0.0/30"}, s: service("a", externalName)},
		{rule: "one node port for two protocols of a port", cidrs: []string{"10.0.0.0/24"},
			others: memoryReservations{"30000": {Name: "b"}, "30001": {Name: "b"}, "30003": {Name: "b"}},
			s: service("a", func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeNodePort, "10.0.0.9"
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "quic", Port: 80, Protocol: corev1.ProtocolUDP})
			}), want: "10.0.0.9=a 30000=b 30001=b 30002=a 30003=b"},
		{rule: "a node port for health checks", cidrs: []string{"10.0.0.0/24"}, others: memoryReservations{"30000": {Name: "b"}, "30001": {Name: "b"}},
			s:    service("a", func(s *corev1.Service) { local(s); s.Spec.ClusterIP = "10.0.0.9"; s.Spec.HealthCheckNodePort = 30003 }),
			want: "10.0.0.9=a 30000=b 30001=b 30002=a 30003=a"},
		{rule: "no node ports if a load balancer wants none", cidrs: []string{"10.0.0.0/24"},
			s: service("a", func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeLoadBalancer, "10.0.0.9"
				s.Spec.AllocateLoadBalancerNodePorts = new(false)
			}), want: "10.0.0.9=a"},
	})
}

func TestAddressesComeFromTheRangesOfServiceCIDRs(t *testing.T) {
	flag, both := []string{"10.0.0.0/30"}, []string{"10.0.0.0/30", "10.1.0.0/30", "fd00::/126"}
	full := memoryReservations{"10.0.0.1": {Name: "b"}, "10.0.0.2": {Name: "b"}, "10.1.0.1": {Name: "b"}}
	testAllocations(t, []allocationCase{
		{rule: "of the first that has one", cidrs: flag, ready: both, others: full, s: service("a", nil), want: "10.0.0.1=b 10.0.0.2=b 10.1.0.1=b 10.1.0.2=a"},
		{rule: "of any if the client names it", cidrs: flag, ready: both, s: service("a", withIP("10.1.0.2")), want: "10.1.0.2=a"},
		{rule: "not of those of the flag alone", cidrs: flag, ready: []string{}, s: service("a", nil), err: "range is full"},
		{rule: "not of those of the flag alone, if the client names it", cidrs: flag, ready: []string{"10.1.0.0/30"}, s: service("a", withIP("10.0.0.1")),
			err: "failed to allocate IP 10.0.0.1: the provided network does not match the current range"},
		{rule: "none if all are full", cidrs: flag, ready: flag, others: full, s: service("a", nil), want: "10.0.0.1=b 10.0.0.2=b 10.1.0.1=b", err: "range is full"},
		{rule: "not of a family that the flag does not have", cidrs: flag, ready: both,
			s: service("a", func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }), err: "IPv6"},
	})
}

func TestCreatingAServiceFailsIfItsAddressesAndPortsAreNotFree(t *testing.T) {
	testAllocations(t, []allocationCase{
		{rule: "not an address that another holds", cidrs: []string{"10.0.0.0/24"}, others: memoryReservations{"10.0.0.9": {Name: "b"}},
			s: service("a", withIP("10.0.0.9")), want: "10.0.0.9=b",
			err: `Service "a" is invalid: spec.clusterIPs: Invalid value: ["10.0.0.9"]: failed to allocate IP 10.0.0.9: provided IP is already allocated`},
		{rule: "not an address outside of the range", cidrs: []string{"10.0.0.0/24"}, s: service("a", withIP("10.0.1.9")),
			err: "failed to allocate IP 10.0.1.9: the provided IP (10.0.1.9) is not in the valid range. The range of valid IPs is 10.0.0.0/24"},
		{rule: "not the broadcast address", cidrs: []string{"10.0.0.0/24"}, s: service("a", withIP("10.0.0.255")), err: "not in the valid range"},
		{rule: "not of a full range", cidrs: []string{"10.0.0.0/30"}, others: memoryReservations{"10.0.0.1": {Name: "b"}, "10.0.0.2": {Name: "b"}},
			s: service("a", nil), want: "10.0.0.1=b 10.0.0.2=b", err: `failed to allocate a serviceIP for Service "a": range is full`},
		{rule: "not a node port that another holds, and gives its address back", cidrs: []string{"10.0.0.0/24"}, others: memoryReservations{"30001": {Name: "b"}},
			s:    service("a", func(s *corev1.Service) { nodePort(s); s.Spec.Ports[0].NodePort = 30001 }),
			want: "30001=b", err: "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated"},
		{rule: "not a node port outside of the range", cidrs: []string{"10.0.0.0/24"},
			s:   service("a", func(s *corev1.Service) { nodePort(s); s.Spec.Ports[0].NodePort = 80 }),
			err: "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-30003"},
		{rule: "not a node port of a full range", cidrs: []string{"10.0.0.0/24"},
			others: memoryReservations{"30000": {Name: "b"}, "30001": {Name: "b"}, "30002": {Name: "b"}, "30003": {Name: "b"}},
			s:      service("a", nodePort), want: "30000=b 30001=b 30002=b 30003=b", err: "failed to allocate a nodePort: range is full"},
		{rule: "not one port for traffic and health checks", cidrs: []string{"10.0.0.0/24"},
			s:   service("a", func(s *corev1.Service) { local(s); s.Spec.Ports[0].NodePort, s.Spec.HealthCheckNodePort = 30001, 30001 }),
			err: "failed to allocate requested HealthCheck NodePort 30001: provided port is already allocated"},
	})
}

type allocationCase struct {
	rule  string
	cidrs []string
	// ready, if not nil, are the ranges of ServiceCIDRs.
	ready  []string
	others memoryReservations
	s      *corev1.Service
	want   string // what is held then
	err    string
}

func testAllocations(t *testing.T, cases []allocationCase) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.rule, test.run)
	}
}

// run creates the service in a dry run, in a write that succeeds and in one that fails.
func (test allocationCase) run(t *testing.T) {
	c := newCluster()
	for key, owner := range test.others {
		if strings.Contains(key, ".") {
			c.ips[key] = owner
		} else {
			c.ports[key] = owner
		}
	}
	env := c.env(test.cidrs...)
	if test.ready != nil {
		env.ServiceRanges = func() []netip.Prefix { return c.env(test.ready...).ServiceCIDRs }
	}
	before := c.keys()
	if finish, err := create(t, env, test.s.DeepCopy(), true); err == nil {
		finish(true)
	} else if test.err == "" {
		t.Errorf("dry run: %v", err)
	}
	if got := c.keys(); got != before {
		t.Errorf("a dry run reserved: %q", got)
	}
	finish, err := create(t, env, test.s, false)
	if (err != nil) != (test.err != "") || (err != nil && !strings.Contains(err.Error(), test.err)) {
		t.Fatalf("error is %v, want %q", err, test.err)
	}
	if got := c.keys(); got != test.want {
		t.Errorf("held are %q, want %q", got, test.want)
	}
	if err != nil {
		return
	}
	finish(false)
	if got := c.keys(); got != before {
		t.Errorf("after a failed write are held %q, want %q", got, before)
	}
}

func TestUpdatingAServiceReservesWhatIsNewAndReleasesTheRest(t *testing.T) {
	base := func(change func(*corev1.Service)) *corev1.Service {
		return service("a", func(s *corev1.Service) {
			s.Spec.ClusterIP = "10.0.0.9"
			if change != nil {
				change(s)
			}
		})
	}
	onPort := func(port int32) func(*corev1.Service) {
		return func(s *corev1.Service) { nodePort(s); s.Spec.Ports[0].NodePort = port }
	}
	for _, test := range []struct {
		rule   string
		old    *corev1.Service
		new    *corev1.Service
		during string // what is held before the write
		want   string // and after it succeeded
		err    string
	}{
		{rule: "what was created can be sent again", old: base(onPort(30001)), new: service("a", nodePort),
			during: "10.0.0.9=a 30001=a", want: "10.0.0.9=a 30001=a"},
		{rule: "a node port goes with its type", old: base(onPort(30001)), new: base(func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30001 }),
			during: "10.0.0.9=a 30001=a", want: "10.0.0.9=a"},
		{rule: "an address goes with its type", old: base(nil), new: service("a", externalName),
			during: "10.0.0.9=a", want: ""},
		{rule: "a named node port replaces the old one", old: base(onPort(30001)), new: base(onPort(30002)),
			during: "10.0.0.9=a 30001=a 30002=a", want: "10.0.0.9=a 30002=a"},
		{rule: "the port of health checks goes with its policy",
			old: base(func(s *corev1.Service) { local(s); s.Spec.Ports[0].NodePort, s.Spec.HealthCheckNodePort = 30001, 30002 }),
			new: base(func(s *corev1.Service) {
				s.Spec.Type, s.Spec.Ports[0].NodePort, s.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, 30001, 30002
			}),
			during: "10.0.0.9=a 30001=a 30002=a", want: "10.0.0.9=a 30001=a"},
		{rule: "a removed port gives up its node port",
			old: base(func(s *corev1.Service) {
				onPort(30001)(s)
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "https", Port: 443, NodePort: 30002})
			}),
			new: base(nodePort), during: "10.0.0.9=a 30001=a 30002=a", want: "10.0.0.9=a 30001=a"},
		{rule: "an external name becomes a service with the address it names", old: service("a", externalName), new: base(nil),
			during: "10.0.0.9=a", want: "10.0.0.9=a"},
		{rule: "an address cannot change", old: base(nil), new: service("a", withIP("10.0.0.10")),
			want: "10.0.0.9=a", err: "spec.clusterIPs[0]: Invalid value: [\"10.0.0.10\"]: may not change once set"},
		{rule: "an address cannot become none", old: base(nil), new: service("a", withIP("None")),
			want: "10.0.0.9=a", err: "may not change once set"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			c := newCluster()
			env := c.env("10.0.0.0/24")
			old := mustCreate(t, env, test.old)
			before := c.keys()
			finish, err := update(t, env, test.new.DeepCopy(), old)
			if (err != nil) != (test.err != "") || (err != nil && !strings.Contains(err.Error(), test.err)) {
				t.Fatalf("error is %v, want %q", err, test.err)
			}
			if err != nil {
				if got := c.keys(); got != test.want {
					t.Errorf("held are %q, want %q", got, test.want)
				}
				return
			}
			if got := c.keys(); got != test.during {
				t.Errorf("before the write are held %q, want %q", got, test.during)
			}
			finish(false)
			if got := c.keys(); got != before {
				t.Errorf("after a failed write are held %q, want %q", got, before)
			}
			if finish, err = update(t, env, test.new, old); err != nil {
				t.Fatal(err)
			}
			finish(true)
			if got := c.keys(); got != test.want {
				t.Errorf("held are %q, want %q", got, test.want)
			}
		})
	}
}

func TestDeletedServiceGivesUpWhatItHeld(t *testing.T) {
	c := newCluster()
	env := c.env("10.0.0.0/24")
	s := mustCreate(t, env, service("a", local))
	other := mustCreate(t, env, service("b", withIP("10.0.0.77")))
	// A later service of the same name is another owner.
	reborn := other.DeepCopy()
	reborn.UID = "reborn"
	releaseService(t.Context(), env, reborn)
	releaseService(t.Context(), env, s)
	if got := c.keys(); got != "10.0.0.77=b" {
		t.Errorf("held are %q", got)
	}
}

func TestEveryAttemptToAllocateIsCountedExceptInADryRun(t *testing.T) {
	c := newCluster()
	env := c.env("10.0.0.0/30")
	var counted []string
	env.CountAllocation = func(pool, part string, static bool, err error) {
		counted = append(counted, fmt.Sprintf("%s %s static=%t failed=%t", pool, part, static, err != nil))
	}
	mustCreate(t, env, service("a", local))
	for name, change := range map[string]func(*corev1.Service){"b": withIP("10.0.0.1"), "c": withIP("10.0.0.2")} {
		if _, err := create(t, env, service(name, change), true); err == nil && name == "b" && c.ips["10.0.0.1"].Name != "" {
			t.Errorf("a dry run got an address in use")
		}
	}
	if _, err := create(t, env, service("d", withIP("10.9.0.1")), false); err == nil {
		t.Error("an address outside of the range was given")
	}
	slices.Sort(counted)
	want := []string{
		"serviceips 10.0.0.0/30 static=false failed=false", "serviceips 10.0.0.0/30 static=true failed=true",
		"servicenodeports  static=false failed=false", "servicenodeports  static=false failed=false",
	}
	if !slices.Equal(counted, want) {
		t.Errorf("counted are %q, want %q", counted, want)
	}
}

func TestServicesFillARangeToTheLastAddress(t *testing.T) {
	c := newCluster()
	env := c.env("10.0.0.0/27")
	seen := map[string]bool{}
	for i := range 30 {
		s := mustCreate(t, env, service(fmt.Sprintf("s%d", i), nil))
		if seen[s.Spec.ClusterIP] {
			t.Fatalf("%s was given twice", s.Spec.ClusterIP)
		}
		seen[s.Spec.ClusterIP] = true
		if last := netip.MustParseAddr(s.Spec.ClusterIP).As4()[3]; i < 14 && last <= 16 {
			t.Errorf("address %d is %s, of the band kept for clients, while there are others", i, s.Spec.ClusterIP)
		}
	}
	if _, err := create(t, env, service("late", nil), false); !apierrors.IsInternalError(err) {
		t.Errorf("a full range answers %v", err)
	}
}
