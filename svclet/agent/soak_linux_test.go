package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

// The environment variables of the tests with random faults: the seed, and the number
// of rounds.
const (
	soakSeed   = "SVCLET_SOAK_SEED"
	soakRounds = "SVCLET_SOAK_ROUNDS"
)

// soak is a machine to which random faults happen.
type soak struct {
	*machine
	chance *rand.Rand
	// written is the spec of each pod that has a manifest.
	written map[string]string
	// restarts is the highest restart count of each pod since the last time that all
	// pods were ready, by its name, without pods whose manifest has changed since.
	restarts map[string]int32
	log      []string
}

// TestStaticPodsConvergeAfterRandomFaults writes and removes manifests, ends
// containers, makes the runtime fail and restarts the agent, all at random. Whenever
// the faults pause, the desired pods run, and nothing is left of others.
func TestStaticPodsConvergeAfterRandomFaults(t *testing.T) {
	seed, rounds := number(t, soakSeed, 1), number(t, soakRounds, 6)
	m := newMachine(t, runtimetest.Options{Events: seed%2 == 0, Behave: func(c *runtimeapi.ContainerConfig) runtimetest.Behaviour {
		if c.GetMetadata().GetName() == "first" {
			return runtimetest.Behaviour{EndsAfter: time.Millisecond}
		}
		return runtimetest.Behaviour{}
	}})
	m.adjust = func(_ *config.Flags, c *config.Configuration) {
		c.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: 10 * time.Millisecond}
		c.RuntimeRequestTimeout.Duration = 2 * time.Second
	}
	s := &soak{machine: m, chance: rand.New(rand.NewPCG(uint64(seed), 0)), written: map[string]string{}, restarts: map[string]int32{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d: %q", soakSeed, seed, s.log)
		}
	})
	m.start()
	for range rounds {
		for range 5 + s.chance.IntN(25) {
			s.act()
			s.checkInvariants()
		}
		s.converge()
	}
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

func (s *soak) note(format string, arguments ...any) {
	s.log = append(s.log, fmt.Sprintf(format, arguments...))
}

// specs are extensions of the spec of a pod's container, which has an image.
var specs = []string{
	"",
	", args: [other]",
	", lifecycle: {postStart: {exec: {command: [a]}}, preStop: {exec: {command: [b]}}}",
	", livenessProbe: {exec: {command: [c]}, periodSeconds: 1}",
	"}\n  - {name: second, image: app:1",
	"}\n  initContainers:\n  - {name: first, image: app:1",
	"}\n  initContainers:\n  - {name: side, image: app:1, restartPolicy: Always",
}

// act makes one random change.
func (s *soak) act() {
	name := string(rune('a' + s.chance.IntN(6)))
	switch s.chance.IntN(10) {
	case 0, 1, 2:
		spec := specs[s.chance.IntN(len(specs))]
		s.note("write %s %q", name, spec)
		s.write(name, spec)
		s.written[name] = spec
		delete(s.restarts, name)
	case 3, 4:
		if _, there := s.written[name]; there {
			s.note("erase %s", name)
			s.erase(name)
			delete(s.written, name)
			delete(s.restarts, name)
		}
	case 5:
		if id := s.runtime.Container(s.pod(name).UID, "app"); id != "" {
			s.note("end %s", name)
			s.runtime.End(id, runtimetest.End{Code: int32(s.chance.IntN(2))})
		}
	case 6:
		if id := s.runtime.Sandbox(s.pod(name).UID); id != "" {
			s.note("break %s", name)
			s.runtime.BreakSandbox(id)
		}
	case 7:
		s.note("down")
		s.runtime.Down()
		s.pause()
		s.Expect(s.runtime.Up()).To(gomega.Succeed())
	case 8:
		s.note("restart")
		s.stop()
		s.start()
	case 9:
		methods := []string{"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "StopContainer", "RemoveContainer", "ListPodSandbox", "ListContainers", "ContainerStatus", "ExecSync"}
		method := methods[s.chance.IntN(len(methods))]
		rule := []runtimetest.Rule{
			{Err: errors.New("no")}, {Hang: true}, {Delay: 20 * time.Millisecond},
		}[s.chance.IntN(3)]
		rule.Times = 1 + s.chance.IntN(3)
		s.note("%s %+v", method, rule)
		s.runtime.Rule(method, rule)
	}
	s.pause()
}

// pause pauses for a random time, or not at all.
func (s *soak) pause() {
	if s.chance.IntN(2) == 0 {
		time.Sleep(time.Duration(s.chance.IntN(50)) * time.Millisecond)
	}
}

// running returns the names of the running containers by pod.
func (s *soak) running() map[types.UID][]string {
	answer, err := s.runtime.ListContainers(context.Background(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	s.Expect(err).NotTo(gomega.HaveOccurred())
	all := map[types.UID][]string{}
	for _, c := range answer.GetContainers() {
		uid := types.UID(c.GetLabels()[runtime.PodUIDLabel])
		all[uid] = append(all[uid], c.GetMetadata().GetName())
	}
	return all
}

// checkInvariants checks what must hold at any time.
func (s *soak) checkInvariants() {
	for uid, names := range s.running() {
		slices.Sort(names)
		s.Expect(slices.Compact(slices.Clone(names))).To(gomega.Equal(names), "containers of pod %s run twice", uid)
	}
	for name, before := range s.restarts {
		for _, c := range s.pod(name).Status.ContainerStatuses {
			if c.Name == "app" {
				s.Expect(c.RestartCount).To(gomega.BeNumerically(">=", before), "restarts of pod %s", name)
				s.restarts[name] = c.RestartCount
			}
		}
	}
}

// converge waits until the desired pods run, and nothing is left of others.
func (s *soak) converge() {
	s.note("rest")
	for _, method := range []string{"ExecSync", "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "StopContainer", "RemoveContainer", "ListPodSandbox", "ListContainers", "ContainerStatus"} {
		s.runtime.RemoveRules(method)
	}
	s.Eventually(s.wrong).Should(gomega.BeEmpty())
	for name := range s.written {
		s.restarts[name] = max(s.restarts[name], 0)
	}
	s.checkInvariants()
}

// wrong returns the first difference from the desired state, empty if there is none.
func (s *soak) wrong() string {
	p := s.agent.pods
	var wanted []types.UID
	running := s.running()
	for name, spec := range s.written {
		shown := s.pod(name)
		if !s.isReady(name)() {
			return fmt.Sprintf("pod %s is not ready: %+v", name, shown.Status)
		}
		containers := len(shown.Spec.Containers)
		for _, c := range shown.Spec.InitContainers {
			if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
				containers++
			}
		}
		if len(running[shown.UID]) != containers {
			return fmt.Sprintf("pod %s (%s) has running %q", name, spec, running[shown.UID])
		}
		wanted = append(wanted, shown.UID)
	}
	slices.Sort(wanted)
	if workers, waiting, setUp := p.Workers(), p.Waiting(), s.agent.pods.executor.SetUpPods(); waiting > 0 || workers != len(wanted) || setUp != len(wanted) {
		return fmt.Sprintf("%d pods wait, %d have workers, %d have been set up, of %d", waiting, workers, setUp, len(wanted))
	}
	for _, dir := range []string{filepath.Join(s.root(), "pods"), filepath.Join(s.dir, "logs")} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != len(wanted) {
			return fmt.Sprintf("%s has %v: %v", dir, entries, err)
		}
	}
	if held := s.runtime.Pods(); !slices.Equal(held, wanted) {
		return fmt.Sprintf("the runtime has %q, wanted are %q", held, wanted)
	}
	return ""
}
