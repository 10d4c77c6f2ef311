package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/pod"
)

func TestGroupsAreThoseOfTheConfiguration(t *testing.T) {
	seconds := func(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }
	for name, c := range map[string]struct {
		configuration config.Configuration
		want          []Group
	}{
		"none":     {},
		"critical": {config.Configuration{ShutdownGracePeriod: seconds(30), ShutdownGracePeriodCriticalPods: seconds(10)}, []Group{{0, 20 * time.Second}, {systemCritical, 10 * time.Second}}},
		"by priority": {
			config.Configuration{ShutdownGracePeriodByPodPriority: []kubeletconfig.ShutdownGracePeriodByPodPriority{{Priority: 1000, ShutdownGracePeriodSeconds: 5}, {Priority: -1, ShutdownGracePeriodSeconds: 7}}},
			[]Group{{-1, 7 * time.Second}, {1000, 5 * time.Second}},
		},
	} {
		if got := Groups(&c.configuration); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func podOf(name string, priority int32, grace int64) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &grace}}
}

func TestAPodIsInTheGroupOfTheNextLowerPriority(t *testing.T) {
	groups := []Group{{0, 20 * time.Second}, {1000, 10 * time.Second}, {systemCritical, 5 * time.Second}}
	for priority, want := range map[int32]int{-5: 0, 0: 0, 999: 0, 1000: 1, 5000: 1, systemCritical: 2, systemCritical + 1000: 2} {
		assigned := assign(groups, []*corev1.Pod{podOf("p", priority, 30)})
		if i := slices.IndexFunc(assigned, func(p []*corev1.Pod) bool { return len(p) == 1 }); i != want {
			t.Errorf("priority %d: group %d, want %d", priority, i, want)
		}
	}
	for own, want := range map[int64]int64{1: 1, 20: 20, 30: 20} {
		if got := grace(groups[0], podOf("p", 0, own)); got != want {
			t.Errorf("grace period %d: %d", own, got)
		}
	}
}

// machine is a fake login manager, and the pods of the node.
type machine struct {
	mu     sync.Mutex
	delay  time.Duration
	fixed  bool // SetDelay has no effect
	events chan bool
	// prepares is what a new connection finds.
	prepares bool
	// taken counts the locks, also those that have been released.
	taken  int
	locks  int
	active []*corev1.Pod
	ended  []string
	stuck  map[string]bool
	// mounted and unwritten are how many more times a pod is asked for until its volumes are
	// unmounted, and its status is written.
	mounted, unwritten map[string]int
	told               []string
}

func (m *machine) Delay(context.Context) (time.Duration, error) { return m.delay, nil }

func (m *machine) SetDelay(_ context.Context, delay time.Duration) error {
	if !m.fixed {
		m.delay = delay
	}
	return nil
}

func (m *machine) Inhibit(context.Context) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locks++
	m.taken++
	return m, nil
}

func (m *machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locks--
	return nil
}

func (m *machine) Watch(context.Context) (<-chan bool, error) { return m.events, nil }

func (m *machine) Prepares(context.Context) (bool, error) { return m.prepares, nil }

func (m *machine) Active() []*corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.active)
}

func (m *machine) Terminate(uid types.UID, e pod.Eviction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = append(m.ended, fmt.Sprintf("%s %s %ds", uid, e.Reason, *e.Grace))
	if !m.stuck[string(uid)] {
		m.active = slices.DeleteFunc(m.active, func(p *corev1.Pod) bool { return p.UID == uid })
	}
}

func (m *machine) Released(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	isPod := func(p *corev1.Pod) bool { return p.UID == uid }
	return !slices.ContainsFunc(m.active, isPod) && m.count(m.mounted, uid, "unmounted")
}

func (m *machine) Written(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count(m.unwritten, uid, "written")
}

// count counts down, and records what has happened to the pod at zero.
func (m *machine) count(left map[string]int, uid types.UID, what string) bool {
	if left[string(uid)] == 0 {
		return true
	}
	left[string(uid)]--
	if left[string(uid)] == 0 {
		m.ended = append(m.ended, string(uid)+" "+what)
	}
	return false
}

func (m *machine) held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locks
}

func (m *machine) terminated() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ended)
}

func TestPodsEndByPriorityBeforeTheMachineShutsDown(t *testing.T) {
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	m := &machine{events: make(chan bool), stuck: map[string]bool{"low": true}, delay: 5 * time.Second,
		active: []*corev1.Pod{podOf("critical", systemCritical, 60), podOf("low", 0, 60), podOf("other", 0, 3)}}
	clock, state := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), &State{}
	manager := New(Options{
		Groups: []Group{{0, 20 * time.Second}, {systemCritical, 10 * time.Second}}, Pods: m, State: state, Clock: clock,
		Connect: func(context.Context) (Machine, error) { return m, nil }, Changed: func() {},
		Event: func(_, reason, _ string) { m.told = append(m.told, reason) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); manager.Run(ctx) }()
	defer func() { cancel(); <-done }()
	g.Eventually(m.held).Should(gomega.Equal(1))
	g.Expect(m.delay).To(gomega.Equal(30 * time.Second))

	m.events <- true
	g.Eventually(m.terminated).Should(gomega.Equal([]string{"low Terminated 20s", "other Terminated 3s"}))
	g.Expect(state.IsShuttingDown()).To(gomega.BeTrue())
	g.Expect(state.Problems()).To(gomega.Equal([]error{errors.New("node is shutting down")}))
	g.Expect(m.held()).To(gomega.Equal(1))
	g.Eventually(clock.HasWaiters).Should(gomega.BeTrue())
	clock.Step(20 * time.Second) // the pod "low" does not end in time
	g.Eventually(m.terminated).Should(gomega.ContainElement("critical Terminated 10s"))
	g.Eventually(m.held).Should(gomega.BeZero())

	m.events <- false
	g.Eventually(m.held).Should(gomega.Equal(1))
	g.Expect(state.Problems()).To(gomega.BeEmpty())
}

func TestAGroupIsUnmountedAndItsStatusesAreWrittenBeforeTheNextEnds(t *testing.T) {
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	m := &machine{events: make(chan bool), delay: 24 * time.Hour, mounted: map[string]int{"app": 3}, unwritten: map[string]int{"app": 2, "driver": 2},
		active: []*corev1.Pod{podOf("driver", systemCritical, 3), podOf("app", 0, 3)}}
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	manager := New(Options{
		Groups: []Group{{0, time.Hour}, {systemCritical, time.Hour}}, Pods: m, State: &State{}, Clock: clock,
		Connect: func(context.Context) (Machine, error) { return m, nil }, Changed: func() {}, Event: func(_, _, _ string) {},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); manager.Run(ctx) }()
	defer func() { cancel(); <-done }()
	m.events <- true
	g.Eventually(func() int { clock.Step(endPoll); return m.held() }).Should(gomega.BeZero())
	g.Expect(m.terminated()).To(gomega.Equal([]string{"app Terminated 3s", "app unmounted", "app written", "driver Terminated 3s", "driver written"}))
}

func TestALoginManagerThatWaitsTooShortlyIsAnError(t *testing.T) {
	m := &machine{events: make(chan bool), delay: 5 * time.Second, fixed: true}
	manager := New(Options{Groups: []Group{{0, 20 * time.Second}}, Connect: func(context.Context) (Machine, error) { return m, nil }})
	want := "the node's pods get 20s, but the login manager delays shutdowns by at most 5s: raise InhibitDelayMaxSec in logind.conf"
	if err := manager.serve(t.Context()); err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestAConnectionFindsWhetherTheMachineShutsDown(t *testing.T) {
	for _, test := range []struct {
		rule          string
		was, prepares bool
		ended, locks  int
	}{
		{"a shutdown that was cancelled without a connection", true, false, 0, 1},
		{"one that has begun without a connection", false, true, 1, 0},
		{"one that is still going on", true, true, 0, 0},
	} {
		t.Run(test.rule, func(t *testing.T) {
			g := gomega.NewWithT(t)
			m := &machine{events: make(chan bool), delay: time.Minute, prepares: test.prepares, active: []*corev1.Pod{podOf("a", 0, 3)}}
			state := &State{}
			state.set(test.was)
			manager := New(Options{
				Groups: []Group{{0, 20 * time.Second}}, Pods: m, State: state, Clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)),
				Connect: func(context.Context) (Machine, error) { return m, nil }, Changed: func() {}, Event: func(_, _, _ string) {},
			})
			close(m.events)
			g.Expect(manager.serve(t.Context())).To(gomega.MatchError("the connection with the login manager has ended"))
			g.Expect(state.IsShuttingDown()).To(gomega.Equal(test.prepares))
			g.Expect(m.terminated()).To(gomega.HaveLen(test.ended))
			g.Expect(m.taken).To(gomega.Equal(test.locks))
		})
	}
}
