package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/runtime/runtimetest"
	"svc.dev/svc/svclet/server/metrics"
)

func TestPodsMayUseTheHugePagesAndTheProcessIDsOfTheMachine(t *testing.T) {
	base := common{Config: Config{Configuration: config.Default()}, metrics: metrics.New("node", clock.RealClock{})}
	machine := node.Machine{HugePages: map[int64]int64{2 << 20: 4, 1 << 30: 0}}
	options, err := cgroupOptions(base, resources{machine: machine}, container.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[corev1.ResourceName]string{"hugepages-2Mi": "8Mi", "hugepages-1Gi": "0"} {
		if got, set := options.Capacity[name]; !set || got.String() != want {
			t.Errorf("capacity of %s: %s (set: %t), want %s", name, &got, set, want)
		}
	}
	if pids, set := options.Capacity[cgroup.PIDs]; !set || pids.Sign() <= 0 {
		t.Errorf("capacity of process IDs: %s (set: %t)", &pids, set)
	}
}

func TestTheProcessIDsOfTheMachineAreTheSmallerLimitOfTheKernel(t *testing.T) {
	for _, test := range []struct {
		files map[string]string
		want  int64
	}{
		{map[string]string{"pid_max": "4194304\n", "threads-max": "30000\n"}, 30000},
		{map[string]string{"pid_max": "32768\n", "threads-max": "192729\n"}, 32768},
		{map[string]string{"threads-max": "30000\n"}, 30000},
		{nil, 0},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "proc/sys/kernel")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, content := range test.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := maxPIDs(root); got != test.want {
			t.Errorf("%v: %d, want %d", test.files, got, test.want)
		}
	}
	if pids, set := capacity(node.Machine{}, 0)[cgroup.PIDs]; set {
		t.Errorf("an unknown number of process IDs is %s", &pids)
	}
}

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
