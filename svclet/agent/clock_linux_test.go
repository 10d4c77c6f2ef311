package agent

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

// jumpingClock is the system clock when it is set: times and their texts jump, but not
// the monotonic clock that measures durations.
type jumpingClock struct {
	clock.RealClock
	seconds atomic.Int64
}

// Now returns what [time.Now] returns after the clock was set. There is no other way to get
// such a time than to change its seconds, which are in bits 30 to 62 of its first word.
func (c *jumpingClock) Now() time.Time {
	now := time.Now()
	*(*uint64)(unsafe.Pointer(&now)) += uint64(c.seconds.Load()) << 30
	return now
}

func (c *jumpingClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// jump sets the clock forward or, by a negative duration, back.
func (c *jumpingClock) jump(t *testing.T, by time.Duration) {
	t.Helper()
	before := c.Now()
	c.seconds.Add(int64(by / time.Second))
	after := c.Now()
	if jumped := after.Round(0).Sub(before.Round(0)) - by; jumped.Abs() > time.Minute || after.Sub(before) > time.Minute {
		t.Fatalf("the test cannot set the clock by %s: from %s to %s", by, before, after)
	}
}

func TestPodsRunOnWhenTheClockIsSet(t *testing.T) {
	set := &jumpingClock{}
	m := newMachine(t, runtimetest.Options{Clock: set})
	m.clock = set
	m.write("probed", ", livenessProbe: {exec: {command: [live]}, periodSeconds: 1, initialDelaySeconds: 1}")
	m.write("plain", "")
	m.start()
	for _, name := range []string{"probed", "plain"} {
		m.Eventually(m.isReady(name)).Should(gomega.BeTrue(), name)
	}
	for i, hours := range []time.Duration{7, -9, 100, -98} {
		containers := m.runtime.Calls("CreateContainer")
		set.jump(t, hours*time.Hour)
		late := fmt.Sprintf("late-%d", i)
		m.write(late, "")
		m.Eventually(m.isReady(late)).Should(gomega.BeTrue(), "a pod after a jump of %d hours", hours)
		m.erase(late)
		m.Eventually(m.runtime.Pods).Should(gomega.HaveLen(2))

		m.stop() // the next agent reads the times of the runtime
		m.start()
		probes := m.runtime.Calls("ExecSync")
		m.Eventually(m.calls("ExecSync")).Should(gomega.BeNumerically(">", probes), "probes after a jump of %d hours", hours)
		for _, name := range []string{"probed", "plain"} {
			m.Eventually(m.isReady(name)).Should(gomega.BeTrue(), "%s after a jump of %d hours", name, hours)
			m.Expect(m.pod(name).Status.ContainerStatuses[0].RestartCount).To(gomega.BeZero())
		}
		m.Expect(m.runtime.Calls("CreateContainer")).To(gomega.Equal(containers+1), "a jump of %d hours has started containers again", hours)
	}
}

// TestPodsStartAgainWhenTheClockWasSetBack: what replaces a container or a sandbox was created
// before it, by its time, and has a number that the runtime does not know yet.
func TestPodsStartAgainWhenTheClockWasSetBack(t *testing.T) {
	set := &jumpingClock{}
	m := newMachine(t, runtimetest.Options{Clock: set})
	m.clock = set
	m.adjust = func(_ *config.Flags, c *config.Configuration) {
		c.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: 10 * time.Millisecond}
	}
	for _, name := range []string{"container", "sandbox"} {
		m.write(name, "")
	}
	m.start()
	for _, name := range []string{"container", "sandbox"} {
		m.Eventually(m.isReady(name)).Should(gomega.BeTrue(), name)
	}
	set.jump(t, -9*time.Hour)
	m.runtime.End(m.runtime.Container(m.pod("container").UID, "app"), runtimetest.End{Code: 3})
	m.runtime.BreakSandbox(m.runtime.Sandbox(m.pod("sandbox").UID))
	for range 2 { // also for the next agent
		for _, name := range []string{"container", "sandbox"} {
			m.Eventually(func() bool {
				all := m.pod(name).Status.ContainerStatuses
				return m.isReady(name)() && all[0].RestartCount == 1
			}).Should(gomega.BeTrue(), name)
		}
		m.stop()
		m.start()
	}
	m.Eventually(m.isReady("sandbox")).Should(gomega.BeTrue())
	m.runtime.BreakSandbox(m.runtime.Sandbox(m.pod("sandbox").UID))
	m.Eventually(func() int32 {
		if all := m.pod("sandbox").Status.ContainerStatuses; len(all) == 1 && all[0].State.Running != nil {
			return all[0].RestartCount
		}
		return 0
	}).Should(gomega.BeEquivalentTo(2))
}
