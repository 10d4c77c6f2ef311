package agent

import (
	"context"
	"testing"

	"github.com/onsi/gomega"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestTheCgroupOfTheSystemIsKeptAndMeasuredOnlyIfItIsNamed(t *testing.T) {
	for name, want := range map[string]int{"": 0, "/system": 1} {
		made, err := newSystemCgroup(name, clock.RealClock{}, overrides{})
		if err != nil {
			t.Fatal(err)
		}
		// None of them runs here.
		if len(made.before) != want || len(made.parts) != want {
			t.Errorf("%q: %d tasks at the start and %d parts of the agent keep it, want %d of each", name, len(made.before), len(made.parts), want)
		}
		c := Config{Configuration: config.Default()}
		c.Configuration.SystemCgroups = name
		if got := systemCgroups(c)[statsapi.SystemContainerMisc]; got != name {
			t.Errorf("%q: %q is measured", name, got)
		}
	}
}

// observedSystem are processes of the system that are moved when the container
// runtime has had a number of requests.
type observedSystem struct {
	requests func() int
	moved    chan int
}

func (s observedSystem) Move(context.Context) { s.moved <- s.requests() }
func (s observedSystem) Run(context.Context)  {}

func TestTheSystemsProcessesAreMovedBeforeAnyContainerIsStarted(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	system := observedSystem{moved: make(chan int, 1), requests: func() int {
		return m.runtime.Calls("ListPodSandbox") + m.runtime.Calls("RunPodSandbox")
	}}
	m.overrides.system = func() systemProcesses { return system }
	m.write("a", "")
	m.start()
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	m.Expect(system.moved).To(gomega.Receive(gomega.BeZero()))
}
