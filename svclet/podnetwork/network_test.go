//go:build linux

package podnetwork

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/podnetwork/plan"
)

// fixture is a network on a machine in memory.
type fixture struct {
	*testing.T
	*Network
	tables  []*knftables.Fake // of IPv4 and IPv6
	applied []plan.Plan
	fail    error
	ranges  []string
	mtu     int
	warns   []string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, ranges: []string{"10.88.0.0/24"}}
	var err error
	f.Network, err = New(Options{
		Mode: plan.HostRoutes, Node: "here", Bridge: "svc0", Runtime: f, Machine: f, Clock: testingclock.NewFakeClock(time.Unix(1_800_000_000, 0)),
		Warn: func(reason, message string) { f.warns = append(f.warns, reason+": "+message) },
		Tables: func(family knftables.Family, name string) (knftables.Interface, error) {
			fake := knftables.NewFake(family, name)
			f.tables = append(f.tables, fake)
			return fake, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) PodRanges() ([]string, error)              { return f.ranges, nil }
func (f *fixture) SetMTU(mtu int) error                      { f.mtu = mtu; return nil }
func (f *fixture) Masquerade(context.Context, bool) error    { return nil }
func (f *fixture) Watch(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }
func (f *fixture) Apply(p plan.Plan) error                   { f.applied = append(f.applied, p); return f.fail }
func (f *fixture) Path(to netip.Addr) (path plan.Path, known bool) {
	local := to == netip.MustParseAddr("192.168.1.10")
	return plan.Path{Link: 2, MTU: 1500, Local: local, Direct: to.As4()[0] == 192}, true
}

// list makes the network know nodes, and syncs.
func (f *fixture) list(nodes ...any) bool {
	f.Helper()
	if err := f.nodes.Replace(nodes, ""); err != nil {
		f.Fatal(err)
	}
	return f.sync(f.Context())
}

func node(name, address string, cidrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: cidrs}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	return n
}

func (f *fixture) expect(want string, is bool) {
	f.Helper()
	if dump := f.tables[0].Dump(); strings.Contains(dump, want) != is {
		f.Errorf("%q is in the rules: %t\n%s", want, !is, dump)
	}
}

func TestBeforeTheNodesAreKnownNothingIsChangedButWhatIsMissing(t *testing.T) {
	f := newFixture(t)
	f.Prepare(t.Context())
	f.expect("own-pods { 10.88.0.0/24 }", true)
	if f.sync(t.Context()); len(f.applied) > 0 {
		t.Error("routes are written before all nodes are known")
	}
	f.list(node("here", "192.168.1.10", "10.88.0.0/24"), node("b", "192.168.1.11", "10.88.1.0/24"))
	f.expect("cluster-pods { 10.88.1.0/24 }", true)
	if len(f.applied) != 1 || len(f.applied[0].Routes) != 1 || f.mtu != 1500 {
		t.Errorf("%+v, MTU %d", f.applied, f.mtu)
	}
	// The next agent leaves the rules of the one before until it knows the nodes.
	next := newFixture(t)
	next.Network.tables[0].nft, next.tables[0] = f.tables[0], f.tables[0]
	next.Prepare(t.Context())
	next.expect("cluster-pods { 10.88.1.0/24 }", true)
}

func TestPodsOfTheOldAndTheNewRangeAreMasqueraded(t *testing.T) {
	f := newFixture(t)
	f.list(node("here", "192.168.1.10", "10.88.7.0/24"))
	for _, own := range []string{"own-pods { 10.88.0.0/24 }", "own-pods { 10.88.7.0/24 }", "cluster-pods { 10.88.0.0/24 }"} {
		f.expect(own, true)
	}
}

func TestAFailureIsRetriedAndANodeThatIsNotReachedIsAnEventOnce(t *testing.T) {
	f := newFixture(t)
	f.fail = errors.New("no buffer space")
	nodes := []any{node("here", "192.168.1.10", "10.88.0.0/24"), node("far", "172.16.0.1", "10.88.1.0/24")}
	if f.list(nodes...) {
		t.Error("a failure is reported as done")
	}
	f.fail = nil
	if !f.list(nodes...) || len(f.warns) != 1 || !strings.Contains(f.warns[0], "Pods of node far are not reached from this node: its address 172.16.0.1") {
		t.Error(f.warns)
	}
}

func TestAClusterThatAssignsNoPodCIDRsIsAnEvent(t *testing.T) {
	f := newFixture(t)
	f.list(node("here", "192.168.1.10"))
	f.check(t.Context())
	f.check(t.Context())
	if len(f.warns) != 1 || !strings.Contains(f.warns[0], "--allocate-node-cidrs") {
		t.Error(f.warns)
	}
}

func TestOnlyChangesOfAddressesAndPodCIDRsOfNodesRequestASync(t *testing.T) {
	f := newFixture(t)
	f.list(node("here", "192.168.1.10", "10.88.0.0/24"))
	<-f.nodes.changed
	heartbeat := node("here", "192.168.1.10", "10.88.0.0/24")
	heartbeat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	for _, step := range []struct {
		change func() error
		want   int
	}{
		{func() error { return f.nodes.Update(heartbeat) }, 0},
		{func() error { return f.nodes.Update(node("here", "192.168.1.12", "10.88.0.0/24")) }, 1},
		{func() error { return f.nodes.Add(node("b", "192.168.1.11")) }, 1},
		{func() error { return f.nodes.Delete(node("b", "192.168.1.11")) }, 1},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		if got := len(f.nodes.changed); got != step.want {
			t.Errorf("%d syncs are requested, want %d", got, step.want)
		}
		for range step.want {
			<-f.nodes.changed
		}
	}
}

func TestAMachineWithoutNftablesIsToldWhatItLacks(t *testing.T) {
	_, err := New(Options{Bridge: "svc0", Tables: func(knftables.Family, string) (knftables.Interface, error) {
		return nil, errors.New("could not find nftables binary")
	}})
	if err == nil || !strings.Contains(err.Error(), "install nftables") || !strings.Contains(err.Error(), "--pod-network=none") {
		t.Error(err)
	}
}
