package pod

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Container states for the tables.
var (
	waits  = corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	runs   = corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	under  = corev1.ContainerStatus{State: runs.State, Started: ptr.To(true)}
	done   = ended(0)
	failed = ended(1)
	again  = corev1.ContainerStatus{State: waits.State, LastTerminationState: failed.State}
)

func ended(code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
}

func TestPhaseIsComputedFromContainerStatuses(t *testing.T) {
	type statuses = []corev1.ContainerStatus
	for _, c := range []struct {
		name             string
		policy           corev1.RestartPolicy
		init             statuses // init containers; the last is a sidecar if so said
		sidecar          bool
		containers       statuses
		settled, running bool // running: a regular container is there in the present sandbox
		phase            corev1.PodPhase
	}{
		{name: "nothing has started", policy: "Always", containers: statuses{waits, waits}, phase: "Pending"},
		{name: "not all have started", policy: "Always", containers: statuses{runs, waits}, phase: "Pending"},
		{name: "all run", policy: "Always", containers: statuses{runs, runs}, phase: "Running"},
		{name: "one runs and one is done", policy: "Never", containers: statuses{runs, done}, phase: "Running"},
		{name: "one runs and one has failed", policy: "Never", containers: statuses{runs, failed}, phase: "Running"},
		{name: "all are done", policy: "Never", containers: statuses{done, done}, phase: "Succeeded"},
		{name: "all are done and run again", policy: "Always", containers: statuses{done, done}, phase: "Running"},
		{name: "all are done, for good", policy: "OnFailure", containers: statuses{done, done}, phase: "Succeeded"},
		{name: "one has failed for good", policy: "Never", containers: statuses{done, failed}, phase: "Failed"},
		{name: "one has failed and runs again", policy: "OnFailure", containers: statuses{done, failed}, phase: "Running"},
		{name: "one waits to run again", policy: "OnFailure", containers: statuses{again}, phase: "Running"},
		{name: "one waits to run again in vain", policy: "Always", containers: statuses{again}, settled: true, phase: "Failed"},
		{name: "all are done and will not run again", policy: "Always", containers: statuses{done}, settled: true, phase: "Succeeded"},
		{name: "an init container waits", policy: "Always", init: statuses{waits}, containers: statuses{waits}, phase: "Pending"},
		{name: "an init container runs", policy: "Always", init: statuses{runs}, containers: statuses{waits}, phase: "Pending"},
		{name: "an init container fails and runs again", policy: "Always", init: statuses{failed}, containers: statuses{waits}, phase: "Pending"},
		{name: "an init container has failed for good", policy: "Never", init: statuses{failed}, containers: statuses{waits}, phase: "Failed"},
		{name: "an init container waits in vain", policy: "Never", init: statuses{again}, containers: statuses{waits}, phase: "Failed"},
		{name: "initialization is done", policy: "Never", init: statuses{done}, containers: statuses{runs}, phase: "Running"},
		{name: "initialization is done and nothing runs", policy: "Never", init: statuses{done}, containers: statuses{waits}, phase: "Pending"},
		{name: "a sidecar has not passed its startup probe", policy: "Never", init: statuses{runs}, sidecar: true, containers: statuses{waits}, phase: "Pending"},
		{name: "a sidecar has", policy: "Never", init: statuses{under}, sidecar: true, containers: statuses{runs}, phase: "Running"},
		{name: "a sidecar restarts in a running pod", policy: "Never", init: statuses{runs}, sidecar: true, containers: statuses{runs}, running: true, phase: "Running"},
		{name: "a sidecar outlives the pod", policy: "Never", init: statuses{under}, sidecar: true, containers: statuses{done}, running: true, phase: "Running"},
		{name: "a sidecar that fails is no failure", policy: "Never", init: statuses{failed}, sidecar: true, containers: statuses{done}, running: true, phase: "Succeeded"},
		{name: "a sidecar that waits to run again is none", policy: "Never", init: statuses{again}, sidecar: true, containers: statuses{done}, running: true, phase: "Succeeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: c.policy}}
			var s corev1.PodStatus
			for i, status := range c.init {
				status.Name = fmt.Sprintf("i%d", i)
				init := corev1.Container{Name: status.Name}
				if c.sidecar {
					init.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
				}
				p.Spec.InitContainers = append(p.Spec.InitContainers, init)
				s.InitContainerStatuses = append(s.InitContainerStatuses, status)
			}
			for i, status := range c.containers {
				status.Name = fmt.Sprintf("c%d", i)
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: status.Name})
				s.ContainerStatuses = append(s.ContainerStatuses, status)
			}
			if phase := New(p, Options{}).phaseOf(&s, c.settled, c.running); phase != c.phase {
				t.Errorf("it is %s, not %s", phase, c.phase)
			}
		})
	}
}

// Kubelet computes 8e45cbd0 for this container.
func TestSpecHashEqualsKubeletsHashOfNameAndImage(t *testing.T) {
	c := corev1.Container{Name: "test_container", Image: "foo/image:v1", Args: []string{"/bin/sh", "-c", "echo abc"}}
	if h := SpecHash(&c); h != 0x8e45cbd0 {
		t.Errorf("%x", h)
	}
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	if h := SpecHash(&c); h != 0x8e45cbd0 {
		t.Error("resources count")
	}
	c.Image = "foo/image:v2"
	if h := SpecHash(&c); h == 0x8e45cbd0 {
		t.Error("the image does not count")
	}
}

func TestRestartRulesMatchExitCodes(t *testing.T) {
	rule := func(operator corev1.ContainerRestartRuleOnExitCodesOperator, values ...int32) corev1.ContainerRestartRule {
		return corev1.ContainerRestartRule{
			Action:    corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: values},
		}
	}
	all := func(code int32) corev1.ContainerRestartRule {
		r := rule("In", code)
		r.Action = corev1.ContainerRestartRuleActionRestartAllContainers // which the gate switches off here
		return r
	}
	for _, c := range []struct {
		name     string
		policy   corev1.ContainerRestartPolicy
		rules    []corev1.ContainerRestartRule
		code     int32
		restarts bool
	}{
		{name: "none matches", policy: "Never", rules: []corev1.ContainerRestartRule{rule("In", 1)}, code: 2},
		{name: "in", policy: "Never", rules: []corev1.ContainerRestartRule{rule("In", 1, 2)}, code: 2, restarts: true},
		{name: "not in", policy: "Never", rules: []corev1.ContainerRestartRule{rule("NotIn", 0)}, code: 2, restarts: true},
		{name: "the second", policy: "Never", rules: []corev1.ContainerRestartRule{rule("In", 1), rule("In", 2)}, code: 2, restarts: true},
		{name: "the first that matches", policy: "Never", rules: []corev1.ContainerRestartRule{all(2), rule("In", 2)}, code: 2},
		{name: "then the policy", policy: "OnFailure", rules: []corev1.ContainerRestartRule{rule("In", 1)}, code: 2, restarts: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := container{spec: &corev1.Container{RestartPolicy: &c.policy, RestartPolicyRules: c.rules}}
			if r := x.restarts(&corev1.Pod{}, c.code); r != c.restarts {
				t.Error(r)
			}
		})
	}
}

// TestAnAgentDoesNotRestartAllContainersTwice: it is killed after a container has been started
// again, and before the API server has the status.
func TestAnAgentDoesNotRestartAllContainersTwice(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	rules := []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1}},
	}}
	w := newEnvironment(t, corev1.PodSpec{Containers: []corev1.Container{{Name: "a", RestartPolicy: &always, RestartPolicyRules: rules}, {Name: "b"}}})
	w.boot()
	settle := func(until func() bool) {
		for w.next(); len(w.inFlight) > 0 && !until(); w.next() {
			w.finish(w.inFlight[0], Result{})
		}
	}
	settle(func() bool { return false })
	w.exit(w.newest("a"), 1, "Error")
	w.observe()
	w.next()
	written := *w.pod.Status.DeepCopy()
	if c := conditionOf(written.Conditions, corev1.AllContainersRestarting); c == nil || c.Status != corev1.ConditionTrue {
		t.Fatalf("the condition is %+v", c)
	}
	settle(func() bool { return w.attempt("a-1") != nil })
	w.pod.Status = written
	w.boot()
	settle(func() bool { return false })
	if w.attempt("a-1") == nil || w.attempt("a-1").State != Running || w.attempt("b-1") == nil {
		t.Errorf("the containers are %+v", w.observed.Containers)
	}
}

func TestPodIPsAreOneOfEachFamilyTheNodesFamilyFirst(t *testing.T) {
	for _, c := range []struct{ node, sandbox, shown []string }{
		{node: []string{"192.0.2.1"}, sandbox: []string{"fd00::1", "10.0.0.1", "10.0.0.2"}, shown: []string{"10.0.0.1", "fd00::1"}},
		{node: []string{"fd00::9"}, sandbox: []string{"10.0.0.1", "FD00:0::1"}, shown: []string{"fd00::1", "10.0.0.1"}},
		{sandbox: []string{"10.0.0.1"}, shown: []string{"10.0.0.1"}},
		{sandbox: []string{"nonsense"}},
	} {
		m := New(&corev1.Pod{}, Options{})
		m.SetNode(Node{HostIPs: c.node})
		m.Observe(Observed{Sandboxes: []Sandbox{{ID: "s", Ready: true, IPs: c.sandbox}}})
		if shown := m.addresses(); fmt.Sprint(shown) != fmt.Sprint(c.shown) {
			t.Errorf("%v of a node with %v becomes %v, not %v", c.sandbox, c.node, shown, c.shown)
		}
	}
}

func TestTheStatusFollowsTheAddressesOfTheNode(t *testing.T) {
	type ips = []string
	for _, c := range []struct {
		name        string
		hostNetwork bool
		node        []ips // one after the other
		host        string
		pod         ips
	}{
		{name: "a node without addresses", node: []ips{nil}, pod: ips{"10.0.0.1", "fd00::1"}},
		{name: "a node that gets addresses", node: []ips{nil, {"192.0.2.1"}}, host: "192.0.2.1", pod: ips{"10.0.0.1", "fd00::1"}},
		{name: "a node that gets addresses of another family", node: []ips{nil, {"2001:db8::1"}}, host: "2001:db8::1", pod: ips{"fd00::1", "10.0.0.1"}},
		{name: "a node that gets other addresses", node: []ips{{"192.0.2.1"}, {"192.0.2.2", "2001:db8::2"}}, host: "192.0.2.2", pod: ips{"10.0.0.1", "fd00::1"}},
		{name: "a node whose primary family changes", node: []ips{{"192.0.2.1"}, {"2001:db8::2"}}, host: "2001:db8::2", pod: ips{"10.0.0.1", "fd00::1"}},
		{name: "a node that loses its addresses", node: []ips{{"192.0.2.1"}, nil}, host: "192.0.2.1", pod: ips{"10.0.0.1", "fd00::1"}},
		{name: "the host network without addresses", hostNetwork: true, node: []ips{nil}},
		{name: "the host network gets addresses", hostNetwork: true, node: []ips{nil, {"192.0.2.1"}}, host: "192.0.2.1", pod: ips{"192.0.2.1"}},
		{name: "the host network gets other addresses", hostNetwork: true, node: []ips{{"192.0.2.1"}, {"192.0.2.2", "2001:db8::2"}}, host: "192.0.2.2", pod: ips{"192.0.2.2", "2001:db8::2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(&corev1.Pod{Spec: corev1.PodSpec{HostNetwork: c.hostNetwork, Containers: []corev1.Container{{Name: "a"}}}}, Options{})
			sandbox := Sandbox{ID: "s", Ready: true}
			if !c.hostNetwork {
				sandbox.IPs = ips{"10.0.0.1", "fd00::1"}
			}
			m.Observe(Observed{Sandboxes: []Sandbox{sandbox}})
			var s corev1.PodStatus
			for _, node := range c.node {
				m.SetNode(Node{HostIPs: node})
				s = m.Next(epoch).Status
			}
			var pod ips
			for _, ip := range s.PodIPs {
				pod = append(pod, ip.IP)
			}
			if s.HostIP != c.host || !slices.Equal(pod, c.pod) {
				t.Errorf("the host's address is %q and the pod's are %q, want %q and %q", s.HostIP, pod, c.host, c.pod)
			}
		})
	}
}

func TestAlphaPartsOfTheStatusObeyTheirGates(t *testing.T) {
	status := func(o Options) corev1.PodStatus {
		m := New(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}, o)
		m.SetNode(Node{HostIPs: []string{"192.0.2.1", "2001:db8::1"}})
		m.Observe(Observed{})
		return m.Next(epoch).Status
	}
	on, off := status(Options{}), status(Options{WithoutHostIPs: true, WithoutReadyToStart: true})
	if len(on.HostIPs) != 2 || conditionOf(on.Conditions, corev1.PodReadyToStartContainers) == nil {
		t.Errorf("on: %v, %v", on.HostIPs, on.Conditions)
	}
	if off.HostIP != "192.0.2.1" || len(off.HostIPs) != 0 || conditionOf(off.Conditions, corev1.PodReadyToStartContainers) != nil {
		t.Errorf("off: %v, %v", off.HostIPs, off.Conditions)
	}
}

func TestTerminationMessagesShareTheirLimit(t *testing.T) {
	long := string(make([]byte, maxMessages))
	s := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{ended(1), ended(1)}}
	s.ContainerStatuses[0].State.Terminated.Message = long
	limitMessages(&s)
	if n := len(s.ContainerStatuses[0].State.Terminated.Message); n != maxMessages/2 {
		t.Errorf("it has %d bytes", n)
	}
}

// BenchmarkNext measures Next for a pod without changes.
func BenchmarkNext(b *testing.B) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "a", Image: "a"}, {Name: "b", Image: "b"}},
	}}
	m := New(p, Options{})
	m.SetNode(Node{HostIPs: []string{"192.0.2.1"}})
	observed := Observed{Sandboxes: []Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}}}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		observed.Containers = append(observed.Containers, Container{
			ID: c.Name, Name: c.Name, SandboxID: "s", State: Running, StartedAt: epoch, SpecHash: SpecHash(c),
		})
	}
	m.Observe(observed)
	m.Done(m.Next(epoch).Start[0], Result{})
	b.ReportAllocs()
	for b.Loop() {
		if out := m.Next(epoch.Add(time.Second)); out.Status.Phase != corev1.PodRunning || len(out.Start) > 0 {
			b.Fatal(out)
		}
	}
}

func TestGracePeriodsOfAnyLengthDoNotOverflow(t *testing.T) {
	for seconds, want := range map[int64]time.Duration{
		-1: -time.Second, 0: 0, 30: 30 * time.Second, math.MaxInt32: math.MaxInt32 * time.Second,
		9223372037: math.MaxInt32 * time.Second, math.MaxInt64: math.MaxInt32 * time.Second,
	} {
		if got := Seconds(seconds); got != want {
			t.Errorf("%d seconds are %v, want %v", seconds, got, want)
		}
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](math.MaxInt64)}}
	m := New(p, Options{})
	if got := m.endGrace(); got < time.Hour {
		t.Errorf("a pod that may take for ever gets %v to end", got)
	}
	if got := m.specGrace(); got < time.Hour {
		t.Errorf("its container gets %v", got)
	}
}

func TestARunningPodReportsTheResourcesOfItsCgroup(t *testing.T) {
	quantity := resource.MustParse
	requests := corev1.ResourceList{
		corev1.ResourceCPU: quantity("1"), corev1.ResourceMemory: quantity("1Mi"), corev1.ResourceEphemeralStorage: quantity("1Gi"),
	}
	own := corev1.ResourceList{corev1.ResourceCPU: quantity("2"), "hugepages-2Mi": quantity("4Mi")}
	for _, c := range []struct {
		name  string
		own   *corev1.ResourceRequirements
		phase corev1.PodPhase
		want  []corev1.ResourceName
	}{
		{name: "waiting", phase: "Pending", want: []corev1.ResourceName{"cpu", "ephemeral-storage", "memory"}},
		{name: "running", phase: "Running", want: []corev1.ResourceName{"cpu", "memory"}},
		{name: "running with its own", own: &corev1.ResourceRequirements{Requests: own}, phase: "Running", want: []corev1.ResourceName{"cpu", "hugepages-2Mi", "memory"}},
		{name: "ended", phase: "Failed", want: []corev1.ResourceName{"cpu", "ephemeral-storage", "memory"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(&corev1.Pod{Spec: corev1.PodSpec{
				Resources:  c.own,
				Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: requests}}},
			}}, Options{})
			got := slices.Sorted(maps.Keys(m.resources(c.phase).Requests))
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestTheStopSignalIsReportedOfContainersThatSetOne(t *testing.T) {
	seen := &Container{State: Running, StopSignal: new(corev1.SIGUSR1)}
	for want, lifecycle := range map[corev1.Signal]*corev1.Lifecycle{"": nil, corev1.SIGUSR1: {StopSignal: new(corev1.SIGUSR1)}} {
		m := New(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Lifecycle: lifecycle}}}}, Options{})
		if s := m.seenStatus(&m.containers[0], seen, nil, nil); ptr.Deref(s.StopSignal, "") != want {
			t.Errorf("with %v: %v", lifecycle, s.StopSignal)
		}
	}
}

func TestAContainerThatNeverRanReportsTheEpochAsStart(t *testing.T) {
	state := stateOf(&Container{State: Exited, Reason: "StartError", FinishedAt: time.Unix(5, 0)}).Terminated
	if state.StartedAt.Unix() != 0 || state.FinishedAt.Unix() != 5 {
		t.Errorf("it ran from %s to %s", state.StartedAt, state.FinishedAt)
	}
}

func TestVolumesOfAnEndedPodAreKeptUntilItIsDeleted(t *testing.T) {
	w := newEnvironment(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a", Image: "a:1"}}})
	w.m = New(w.pod.DeepCopy(), Options{KeepVolumes: true})
	w.observe()
	settle := func() (tornDown bool) {
		w.next()
		for range 20 {
			if len(w.inFlight) == 0 {
				return tornDown
			}
			tornDown = tornDown || w.inFlight[0].Kind == TearDown
			w.finish(w.inFlight[0], Result{})
			w.next()
		}
		t.Fatal("it never comes to rest")
		return false
	}
	settle()
	w.exit(w.newest("a"), 0, "Completed")
	w.observe()
	if settle() || w.out.Status.Phase != corev1.PodSucceeded {
		t.Errorf("a pod that is %s has lost its volumes", w.out.Status.Phase)
	}
	now := metav1.NewTime(w.now)
	w.pod.DeletionTimestamp, w.pod.DeletionGracePeriodSeconds = &now, ptr.To[int64](0)
	w.update()
	if !settle() || !w.out.Released {
		t.Error("a deleted pod keeps its volumes")
	}
}
