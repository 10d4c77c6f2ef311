package agent

import (
	"context"
	"testing"

	"github.com/onsi/gomega"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestTheCgroupOfTheSystemIsKeptAndMeasuredOnlyIfItIsNamed(t *testing.T) {
	for named, parts := range map[string]int{"": 0, "/system": 1} {
		a := &Agent{Config: Config{Configuration: config.Default()}}
		a.Configuration.SystemCgroups = named
		if err := a.makeSystemCgroup(); err != nil {
			t.Fatal(err)
		}
		// None of them runs here.
		if len(a.before) != parts || len(a.parts) != parts {
			t.Errorf("%q: %d steps at the start and %d parts of the agent keep it, want %d of each", named, len(a.before), len(a.parts), parts)
		}
		if got := a.systemCgroups()[statsapi.SystemContainerMisc]; got != named {
			t.Errorf("%q: %q is measured", named, got)
		}
	}
}

func TestTheSystemsProcessesAreMovedBeforeAnyContainerIsStarted(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	asked := make(chan int, 1)
	m.prepare = func(a *Agent) {
		a.before = append(a.before, func(context.Context) {
			asked <- m.runtime.Calls("ListPodSandbox") + m.runtime.Calls("RunPodSandbox")
		})
	}
	m.write("a", "")
	m.start()
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	m.Expect(asked).To(gomega.Receive(gomega.BeZero()))
}
