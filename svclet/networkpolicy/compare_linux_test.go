package networkpolicy

import (
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/knftables"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/svclet/netnstest"
	"svc.dev/svc/svclet/runtime"
)

// everyKind has each kind of rule.
const everyKind = `
podSelector: {}
policyTypes: [Ingress, Egress]
ingress:
- from:
  - podSelector: {}
  - namespaceSelector: {matchLabels: {team: a}}
  - ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.1/32, 192.0.2.8/29]}
  - ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8:1::/48"]}
  - ipBlock: {cidr: 198.51.100.0/24}
  - ipBlock: {cidr: 203.0.113.0/24}
  ports: [{port: 80}, {port: 90, endPort: 99}, {port: web}, {protocol: UDP, port: web}, {protocol: SCTP}]
egress:
- to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}, {ipBlock: {cidr: "::/0"}}]
- ports: [{protocol: UDP, port: 53}, {protocol: TCP}]
`

// newCompared returns an enforcer that has written policies for two pods, in the namespace of the
// caller.
func newCompared(t *testing.T) (*Enforcer, error) {
	results := t.TempDir()
	e, err := New(Options{
		Node: "here", Bridge: "svc0", Results: results, Clock: clock.RealClock{}, Warn: func(string, string) {},
		Sysctl: func(string, string) error { return nil },
	})
	if err != nil {
		return nil, err
	}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "every-kind"}}
	err = errors.Join(yaml.UnmarshalStrict([]byte(everyKind), &policy.Spec),
		writeResult(results, "port1", "10.88.0.5", "fd00::5"), writeResult(results, "port2", "10.88.0.6", "fd00::6"))
	e.Adopt([]runtime.Pod{has("web", "10.88.0.5", "fd00::5"), has("other", "10.88.0.6", "fd00::6")})
	pods := []any{web("web"), web("other")}
	for _, p := range pods {
		p.(*corev1.Pod).Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}}}
	}
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}}
	err = errors.Join(err, policiesOf(e.state).Replace([]any{policy, deny()[0]}, ""), namespacesOf(e.state).Replace([]any{shop}, ""), podsOf(e.state).Replace(pods, ""))
	if !e.sync(t.Context()) {
		err = errors.Join(err, e.state.failure, errors.New("the rules are not written"))
	}
	return e, err
}

// listed returns what the program nft lists of all tables, word for word, sorted: the
// elements of a set have no order.
func listed(t *testing.T) []string {
	out, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Errorf("nft list ruleset: %v: %s", err, out)
	}
	words := strings.Fields(strings.ReplaceAll(string(out), ",", ""))
	return slices.Sorted(slices.Values(words))
}

func TestWhatAnotherProgramChangesInTablesIsWrittenAgain(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		e, err := newCompared(t)
		if err != nil {
			t.Error(err)
			return
		}
		// synced reports whether the check and the sync after it find what is to be there.
		synced := func() bool { e.check(t.Context()); return e.sync(t.Context()) }
		if !synced() {
			t.Error("tables that are the same differ")
		}
		if e.check(t.Context()); e.comparison.Due() {
			t.Error("tables that were the same are compared again")
		}
		want := listed(t)
		text := strings.Join(want, " ")
		chain, set := regexp.MustCompile(`ingress-\S+`).FindString(text), regexp.MustCompile(`port-tcp-\S+`).FindString(text)
		for _, command := range []string{
			"flush map ip svc0-policies ingress", "flush map ip6 svc0-policies egress", "flush chain ip svc0-policies " + chain, "flush set ip6 svc0-policies pods-of-node",
			"flush set ip svc0-policies " + set, "insert rule ip svc0-policies " + chain + " return", "add element ip svc0-policies to-itself { 10.88.0.7 . 10.88.0.5 }",
			"flush set bridge svc0-policies ports", "flush set bridge svc0-policies addresses-ip6",
		} {
			if out, err := exec.CommandContext(t.Context(), "nft", strings.Fields(command)...).CombinedOutput(); err != nil {
				t.Errorf("nft %s: %v: %s", command, err, out)
			}
			if synced() {
				t.Errorf("nft %s is not noticed", command)
			}
			if !e.sync(t.Context()) || !synced() || !slices.Equal(listed(t), want) {
				t.Errorf("after nft %s the rules are not written again:\n%v\nwant\n%v", command, listed(t), want)
			}
		}
	})
}

func TestTablesAreComparedOnlyAfterAChangeOfTheGeneration(t *testing.T) {
	f := newFixture(t)
	f.Adopt([]runtime.Pod{has("a", "10.244.0.5")})
	f.list(deny(), web("a"))
	flush := func() {
		tx := f.v4.NewTransaction()
		tx.Flush(&knftables.Map{Name: "ingress"})
		f.must(f.v4.Fake.Run(t.Context(), tx))
	}
	// expect checks and syncs, and expects that the flush of the map has been noticed, or not.
	expect := func(rule string, noticed bool) {
		t.Helper()
		if f.check(t.Context()); f.sync(t.Context()) == noticed {
			t.Errorf("%s: it is noticed: %t", rule, !noticed)
		}
	}
	expect("nothing has changed", false)
	flush()
	expect("the generation has not changed", false)
	generation := uint32(1)
	f.generation = func() uint32 { generation++; return generation }
	expect("the generation changes while tables are read", false)
	f.generation = func() uint32 { return 2 }
	expect("the generation has changed", true)
	f.sync(t.Context())
	f.expect(filtered, true)
}
