package networkpolicy

import (
	"context"
	"errors"
	gorun "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/source"
)

// kernel is nftables in memory, which can fail.
type kernel struct {
	*knftables.Fake
	mu   sync.Mutex
	fail error
	runs []string
}

func (k *kernel) Run(ctx context.Context, tx *knftables.Transaction) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		return k.fail
	}
	k.runs = append(k.runs, tx.String())
	return k.Fake.Run(ctx, tx)
}

// last returns the last transaction.
func (k *kernel) last() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.runs[len(k.runs)-1]
}

type fixture struct {
	*testing.T
	*Enforcer
	v4    *kernel
	clock *testingclock.FakeClock
	warns []string
	// generation is that of the tables.
	generation func() uint32
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, clock: testingclock.NewFakeClock(time.Unix(1_800_000_000, 0)), generation: func() uint32 { return 1 }}
	var err error
	f.Enforcer, err = New(Options{
		Node: "here", Bridge: "svc0", Clock: f.clock, Results: t.TempDir(),
		Warn:       func(reason, message string) { f.warns = append(f.warns, reason+": "+message) },
		Sysctl:     func(string, string) error { return nil },
		Generation: func() (uint32, error) { return f.generation(), nil },
		Tables: func(family knftables.Family, name string) (knftables.Interface, error) {
			k := &kernel{Fake: knftables.NewFake(family, name)}
			if family == knftables.IPv4Family {
				f.v4 = k
			}
			return k, nil
		},
	})
	f.must(err)
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// list makes the enforcer know policies, pods and the namespace shop, and writes them.
func (f *fixture) list(policies []any, pods ...any) {
	f.Helper()
	f.must(policiesOf(f.state).Replace(policies, ""))
	f.must(namespacesOf(f.state).Replace([]any{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}, ""))
	f.must(podsOf(f.state).Replace(pods, ""))
	if !f.sync(f.Context()) {
		f.Fatal("not written")
	}
}

func (f *fixture) expect(want string, is bool) {
	f.Helper()
	if dump := f.v4.Dump(); strings.Contains(dump, want) != is {
		f.Errorf("%q is in the rules: %v\n%s", want, !is, dump)
	}
}

// deny selects the pods with the label app=web.
func deny() []any {
	return []any{&networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}}
}

// web returns a pod of this node with the label app=web, and the addresses of its status.
func web(uid types.UID, addresses ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: string(uid), UID: uid, Labels: map[string]string{"app": "web"}}}
	p.Spec.NodeName = "here"
	for _, ip := range addresses {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

// has returns a pod of the runtime with the label app=web.
func has(uid types.UID, addresses ...string) runtime.Pod {
	return runtime.Pod{UID: uid, Namespace: "shop", Name: string(uid), Labels: map[string]string{"app": "web"}, Observed: pod.Observed{Sandboxes: []pod.Sandbox{{Ready: true, IPs: addresses}, {IPs: []string{"10.244.0.99"}}}}}
}

const filtered = "ingress { 10.244.0.5 : jump ingress-"

func TestNothingIsWrittenBeforeAllObjectsAreKnown(t *testing.T) {
	f := newFixture(t)
	f.Adopt([]runtime.Pod{has("a", "10.244.0.5")})
	f.must(policiesOf(f.state).Replace(deny(), ""))
	f.sync(t.Context())
	f.must(namespacesOf(f.state).Replace(nil, ""))
	f.sync(t.Context())
	if len(f.v4.runs) > 0 {
		t.Fatal(f.v4.runs)
	}
	f.must(podsOf(f.state).Replace([]any{web("a")}, ""))
	f.sync(t.Context())
	f.expect(filtered, true)
	if len(f.v4.runs) != 1 || !strings.Contains(f.v4.last(), "delete table") {
		t.Error("the old rules were not replaced in one transaction", f.v4.runs)
	}
}

func TestWithoutPoliciesPodsAndNamespacesAreNotNeeded(t *testing.T) {
	f := newFixture(t)
	f.must(policiesOf(f.state).Replace(nil, ""))
	if f.sync(t.Context()); len(f.v4.runs) != 1 {
		t.Error("the rules of before stay")
	}
	select {
	case <-f.state.needed:
		t.Error("pods and namespaces are watched")
	default:
	}
	f.must(f.Protect(t.Context(), web("a"), []string{"10.244.0.5"}))
	f.must(policiesOf(f.state).Add(deny()[0]))
	<-f.state.needed
}

func TestTheRuntimeKnowsTheAddressesOfThePodsOfThisNode(t *testing.T) {
	f := newFixture(t)
	unseen := has("c")
	unseen.Err = errors.New("no answer")
	f.Adopt([]runtime.Pod{has("a", "10.244.0.5"), unseen})
	f.list(deny(), web("a"), web("b", "10.244.0.6"), web("c", "10.244.0.7"))
	f.expect(filtered, true)
	// After a restart of the machine the status has an address that another pod may get.
	f.expect("10.244.0.6", false)
	f.expect("10.244.0.7", true)
	// That of a sandbox that has ended, too.
	f.expect("10.244.0.99", false)
}

func TestAPodIsProtectedWhenItsRulesAreWritten(t *testing.T) {
	f := newFixture(t)
	f.list(deny())
	protected := make(chan error, 1)
	go func() { protected <- f.Protect(t.Context(), web("a"), []string{"10.244.0.5"}) }()
	<-f.state.changed // by the lists
	for {
		if f.sync(t.Context()); strings.Contains(f.v4.Dump(), filtered) {
			break
		}
		select {
		case err := <-protected:
			t.Fatal("protected before its rules are written", err)
		case <-f.state.changed:
		}
	}
	f.must(<-protected)

	// The API server learns of it later, and of its labels first.
	f.must(podsOf(f.state).Add(web("a")))
	f.sync(t.Context())
	f.expect(filtered, true)
	// A deleted pod is filtered until it is gone from the node.
	f.must(podsOf(f.state).Delete(web("a")))
	f.sync(t.Context())
	f.expect(filtered, true)
	f.Release("a")
	f.sync(t.Context())
	f.expect("10.244.0.5", false)
}

func TestAPodThatTheAPIServerDoesNotHaveIsFilteredUntilItIsGoneFromTheNode(t *testing.T) {
	f := newFixture(t)
	f.Adopt([]runtime.Pod{has("deleted-before", "10.244.0.5"), has("deleted-later", "10.244.0.6"), has("relabelled", "10.244.0.7")})
	relabelled := web("relabelled")
	relabelled.Labels = nil
	f.list(deny(), web("deleted-later"), relabelled)
	f.must(podsOf(f.state).Delete(web("deleted-later")))
	f.must(podsOf(f.state).Delete(relabelled))
	f.sync(t.Context())
	f.expect(filtered, true)
	f.expect("ingress { 10.244.0.6 : jump ingress-", true)
	f.expect("ingress { 10.244.0.7", false)
	f.Release("deleted-before")
	f.Release("deleted-later")
	f.sync(t.Context())
	f.expect("10.244.0.5", false)
	f.expect("10.244.0.6", false)
}

func TestThePodsThatWaitForNothing(t *testing.T) {
	f := newFixture(t)
	static := web("static")
	static.Annotations = map[string]string{source.SourceAnnotation: source.File}
	f.must(f.Protect(t.Context(), static, []string{"10.244.0.8"})) // the API server has not been reached
	f.list(deny())
	onNode := web("node")
	onNode.Spec.HostNetwork = true
	f.must(f.Protect(t.Context(), onNode, []string{"192.0.2.1"}))
	f.sync(t.Context())
	f.expect("10.244.0.8", true)
	f.expect("192.0.2.1", false)
}

func TestAStaticPodMaySendBeforeTheAPIServerIsReached(t *testing.T) {
	f := newFixture(t)
	f.list(deny())
	restarted := newFixture(t)
	restarted.v4.Fake = f.v4.Fake
	static := web("static")
	static.Annotations = map[string]string{source.SourceAnnotation: source.File}
	f.must(restarted.Protect(t.Context(), static, []string{"10.244.0.8"}))
	f.expect("pods-of-node { 10.244.0.8 }", true)
}

func TestAStaticPodIsNotAddedToRulesThatAreWrittenAnyway(t *testing.T) {
	f := newFixture(t)
	f.list(deny())
	static := web("static")
	static.Annotations = map[string]string{source.SourceAnnotation: source.File}
	f.Adopt([]runtime.Pod{has("static", "10.244.0.8")})
	f.must(policiesOf(f.state).Replace(nil, ""))
	f.sync(t.Context())
	f.must(f.Protect(t.Context(), static, []string{"10.244.0.8"}))
	f.expect("10.244.0.8", false)
}

func TestAPodWhoseRulesCannotBeWrittenDoesNotStart(t *testing.T) {
	f := newFixture(t)
	f.list(deny())
	f.v4.fail = errors.New("no memory")
	protected := make(chan error, 1)
	go func() { protected <- f.Protect(t.Context(), web("a"), []string{"10.244.0.5"}) }()
	for !f.clock.HasWaiters() {
		gorun.Gosched()
	}
	f.sync(t.Context())
	f.clock.Step(protectTimeout)
	if err := <-protected; err == nil || !strings.Contains(err.Error(), "no memory") {
		t.Error(err)
	}
	f.v4.fail = nil
	if !f.sync(t.Context()) || !strings.Contains(f.v4.last(), "delete table") {
		t.Error("after a failure the whole table is not written", f.v4.last())
	}
	f.expect(filtered, true)
}

func TestAnEndedPodsAddressIsForgotten(t *testing.T) {
	f := newFixture(t)
	f.Adopt([]runtime.Pod{has("a", "10.244.0.5")})
	f.list(deny(), web("a"))
	ended := web("a", "10.244.0.5")
	ended.Status.Phase = corev1.PodSucceeded
	f.must(podsOf(f.state).Delete(ended))
	f.sync(t.Context())
	f.expect("10.244.0.5", false)
}

// mirrors returns a change of the API's pod to one with the annotation of mirror pods.
func mirrors(p *corev1.Pod, static types.UID) *corev1.Pod {
	p.UID, p.Annotations = "mirror", map[string]string{source.MirrorAnnotation: string(static)}
	return p
}

func TestAMirrorPodIsItsStaticPod(t *testing.T) {
	f := newFixture(t)
	adopted := has("static", "10.244.0.5")
	adopted.Labels = nil
	f.Adopt([]runtime.Pod{adopted})
	f.list(deny(), mirrors(web("static", "10.244.0.99"), "static"))
	f.expect(filtered, true)
	f.expect("10.244.0.99", false)
}

func TestAMirrorPodThatWasKnownBeforeItsStaticPodIsThatPod(t *testing.T) {
	f := newFixture(t)
	mirror := mirrors(web("static", "10.244.0.99"), "static")
	f.list(deny(), mirror)
	static := web("static")
	static.Labels, static.Annotations = nil, map[string]string{source.SourceAnnotation: source.File}
	for range 2 { // it may start again while it has the same mirror
		f.state.hold(static, []string{"10.244.0.5"})
		f.sync(t.Context())
		f.expect(filtered, true)
		f.Release("static")
		f.sync(t.Context())
		f.expect("10.244.0.5", false)
	}
	f.must(podsOf(f.state).Delete(mirror))
	if len(f.state.local) > 0 || len(f.state.model.Pods()) > 0 {
		t.Error("left:", f.state.local)
	}
}

// TestAPodWithTheUIDOfAnotherInItsAnnotationIsNotThatPod: any client that may create pods can
// set the annotation.
func TestAPodWithTheUIDOfAnotherInItsAnnotationIsNotThatPod(t *testing.T) {
	for name, change := range map[string]func(fake *corev1.Pod){
		"of another namespace": func(fake *corev1.Pod) { fake.Namespace = "evil" },
		"of another name":      func(fake *corev1.Pod) { fake.Name = "fake" },
		"of another node":      func(fake *corev1.Pod) { fake.Spec.NodeName = "elsewhere" },
	} {
		for kind, victim := range map[string]*corev1.Pod{"static pod": mirrors(web("victim"), "victim"), "pod of the API": web("victim")} {
			t.Run(kind+" "+name, func(t *testing.T) {
				f := newFixture(t)
				f.Adopt([]runtime.Pod{has("victim", "10.244.0.5")})
				fake := mirrors(web("victim"), "victim")
				fake.UID, fake.Labels = "fake", nil
				change(fake)
				f.list(deny(), victim, fake)
				f.expect(filtered, true)
				f.must(podsOf(f.state).Delete(victim)) // it ends, and still runs
				f.must(podsOf(f.state).Update(fake))
				f.sync(t.Context())
				f.expect(filtered, true)
				fake.Status.Phase = corev1.PodFailed
				f.must(podsOf(f.state).Delete(fake))
				f.sync(t.Context())
				f.expect(filtered, true)
			})
		}
	}
}

func TestAPodOfTheAPIHasNoMirror(t *testing.T) {
	f := newFixture(t)
	f.Adopt([]runtime.Pod{has("a", "10.244.0.5")})
	f.list(deny(), web("a"))
	f.must(podsOf(f.state).Delete(web("a"))) // it ends, and still runs
	fake := mirrors(web("a"), "a")
	fake.Labels = nil
	f.must(podsOf(f.state).Add(fake))
	f.sync(t.Context())
	f.expect(filtered, true)
}

func TestATableThatAnotherProgramHasRemovedIsWrittenAgain(t *testing.T) {
	f := newFixture(t)
	f.Adopt([]runtime.Pod{has("a", "10.244.0.5")})
	f.list(deny(), web("a"))
	for _, remove := range []func(*knftables.Transaction){
		func(tx *knftables.Transaction) { tx.Delete(&knftables.Table{}) },
		func(tx *knftables.Transaction) { tx.Flush(&knftables.Chain{Name: "forward"}) },
	} {
		tx := f.v4.NewTransaction()
		remove(tx)
		f.must(f.v4.Fake.Run(t.Context(), tx))
		f.check(t.Context())
		f.sync(t.Context())
		f.expect(filtered, true)
		f.expect("forward ip daddr vmap @ingress", true)
	}
}

func TestABridgeThatIsNotFilteredIsReportedOnce(t *testing.T) {
	f := newFixture(t)
	f.options.Sysctl = func(string, string) error { return errors.New("no such file") }
	f.check(t.Context())
	f.check(t.Context())
	if len(f.warns) != 1 || !strings.Contains(f.warns[0], NotEnforced) || !strings.Contains(f.warns[0], "br_netfilter") {
		t.Error(f.warns)
	}
}

func TestAMachineWithoutNftablesIsToldWhatItLacks(t *testing.T) {
	_, err := New(Options{Tables: func(knftables.Family, string) (knftables.Interface, error) {
		return nil, errors.New(`could not find nftables binary: exec: "nft": executable file not found in $PATH`)
	}})
	if err == nil || !strings.Contains(err.Error(), "install nftables") || !strings.Contains(err.Error(), "--network-policy=false") {
		t.Error(err)
	}
}
