package pod

import (
	"flag"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/podspec"
)

var (
	seeds = flag.Int("seeds", defaultSeeds, "how many random lives of pods to play")
	seed  = flag.Int64("seed", -1, "the only one to play, with its history")
)

// TestInvariantsHoldInRandomScenarios plays random scenarios, in which anything may happen at any time, and
// checks the invariants after each step.
func TestInvariantsHoldInRandomScenarios(t *testing.T) {
	if *seed >= 0 {
		live(t, *seed, true)
		return
	}
	for s := range int64(*seeds) {
		live(t, s, false)
		if t.Failed() {
			t.Fatalf("seed %d", s)
		}
	}
}

// scenario is a random scenario of one pod.
type scenario struct {
	*environment
	r       *rand.Rand
	history []string
	shown   []string
	// unwanted reports that nothing may be started any more.
	unwanted bool
	ended    bool
	released bool
	status   corev1.PodStatus
	// booted reports that the agent has been restarted, and has not known the node's addresses at
	// any check since.
	booted bool
}

func live(t *testing.T, seed int64, verbose bool) {
	r := rand.New(rand.NewSource(seed))
	l := &scenario{environment: newEnvironment(t, randomSpec(r)), r: r}
	defer func() {
		if v := recover(); v != nil {
			t.Logf("%s", strings.Join(l.history, "\n"))
			panic(v)
		}
		if t.Failed() || verbose {
			t.Logf("%s", strings.Join(l.history, "\n"))
		}
	}()
	if r.Intn(8) == 0 {
		l.pod.Annotations = map[string]string{sourceAnnotation: "file"}
	}
	l.status = l.pod.Status
	l.dual = r.Intn(2) == 0
	l.boot()
	l.check()
	for range 20 + r.Intn(100) {
		if t.Failed() || l.released {
			return
		}
		l.happen()
		l.check()
	}
	l.log("the end")
	if r.Intn(4) == 0 {
		l.log("only the runtime knows it")
		l.orphan()
		l.status = corev1.PodStatus{}
	}
	l.m.Remove()
	l.unwanted = true
	for range 200 {
		l.check()
		if t.Failed() || l.released {
			return
		}
		switch {
		case len(l.inFlight) > 0:
			l.finish(l.inFlight[0], Result{})
		case !l.out.Wake.IsZero():
			l.now = l.out.Wake
		default:
			t.Errorf("it is stuck on its way out")
			return
		}
	}
	t.Errorf("it never goes")
}

func (l *scenario) log(format string, args ...any) {
	l.history = append(l.history, fmt.Sprintf("%s ", l.now.Sub(epoch))+fmt.Sprintf(format, args...))
}

// check calls Next and checks its output.
func (l *scenario) check() {
	before := l.status
	out := l.next()
	for _, o := range out.Start {
		l.log("  do %s", show(o))
		l.checkStart(o)
	}
	lines := summary(&out)
	for _, line := range lines {
		if !slices.Contains(l.shown, line) {
			l.log("    %s", line)
		}
	}
	l.shown = lines
	fail := func(format string, args ...any) { l.t.Errorf(format, args...) }
	if podspec.IsTerminal(before.Phase) && out.Status.Phase != before.Phase {
		fail("the phase goes from %s to %s", before.Phase, out.Status.Phase)
	}
	if podspec.IsTerminal(out.Status.Phase) && !out.Ended {
		fail("the pod is %s and has not ended", out.Status.Phase)
	}
	checkCounts(fail, before.ContainerStatuses, out.Status.ContainerStatuses)
	checkCounts(fail, before.InitContainerStatuses, out.Status.InitContainerStatuses)
	checkConditions(fail, &before, &out.Status)
	l.checkAddresses(fail, &before, &out.Status)
	if !out.Wake.IsZero() && !out.Wake.After(l.now) {
		fail("it wants to be asked at %s, and it is %s", out.Wake, l.now)
	}
	if out.Released && (len(l.observed.Sandboxes)+len(l.observed.Containers)+len(l.inFlight) > 0 || !out.Ended) {
		fail("it is released, and there is %v %v", l.observed, l.inFlight)
	}
	l.ended, l.released = l.ended || out.Ended, out.Released
	if running := l.running(); out.Ended && running != "" {
		fail("it has ended, and %s runs", running)
	}
	l.status = out.Status
	l.checkStuck(out)
	inFlight := slices.Clone(l.inFlight)
	again := l.m.Next(l.now)
	if len(again.Start)+len(again.Events) > 0 || !reflect.DeepEqual(again.Status, out.Status) ||
		len(l.inFlight) == 0 && !again.Wake.Equal(out.Wake) || again.Ended != out.Ended || again.Released != out.Released {
		fail("asked again it says %v %v %s\n%v\n%v %s", again.Start, again.Events, again.Wake, summary(&again), summary(&out), out.Wake)
	}
	l.inFlight = inFlight
}

// checkStart checks an operation that is to be started.
func (l *scenario) checkStart(o Operation) {
	switch o.Kind {
	case SetUp, CreateSandbox, StartContainer:
		if l.unwanted || l.ended {
			l.t.Errorf("%s of a pod that ends", show(o))
		}
	}
	switch o.Kind {
	case CreateSandbox:
		if slices.ContainsFunc(l.observed.Sandboxes, func(s Sandbox) bool { return s.Ready }) {
			l.t.Errorf("%s beside one that is ready", show(o))
		}
	case StartContainer:
		if len(l.observed.Sandboxes) == 0 || l.observed.Sandboxes[0].ID != o.SandboxID || !l.observed.Sandboxes[0].Ready {
			l.t.Errorf("%s, which is not the ready one", show(o))
		}
		for _, c := range l.observed.Containers {
			if c.Name == o.Name && (c.State == Running || c.Attempt >= o.Attempt) {
				l.t.Errorf("%s beside %s %s", show(o), c.ID, c.State)
			}
		}
		for _, f := range l.inFlight {
			if f.Name == o.Name && f != o && f.Kind != RemoveContainer {
				l.t.Errorf("%s beside %s", show(o), show(f))
			}
		}
	case StopContainer, RemoveContainer:
		if l.attempt(o.ID) == nil {
			l.t.Errorf("%s, which is not there", show(o))
		}
		if o.Kind == RemoveContainer && l.attempt(o.ID).State == Running {
			l.t.Errorf("%s, which runs", show(o))
		}
	}
}

func checkCounts(fail func(string, ...any), before, after []corev1.ContainerStatus) {
	for _, b := range before {
		a := statusOf(after, b.Name)
		if a != nil && a.RestartCount < b.RestartCount {
			fail("the restarts of %s go from %d to %d", b.Name, b.RestartCount, a.RestartCount)
		}
	}
}

func checkConditions(fail func(string, ...any), before, after *corev1.PodStatus) {
	for _, a := range after.Conditions {
		b := conditionOf(before.Conditions, a.Type)
		if b != nil && (b.Status == a.Status) != b.LastTransitionTime.Equal(&a.LastTransitionTime) && b.Status == a.Status {
			fail("%s changes its time and not its status", a.Type)
		}
	}
	if r := conditionOf(after.Conditions, corev1.PodReady); r != nil && r.Status == corev1.ConditionTrue {
		for _, c := range after.ContainerStatuses {
			if !c.Ready || c.State.Running == nil {
				fail("the pod is ready and %s is not", c.Name)
			}
		}
	}
}

// checkAddresses checks that the status has the node's addresses, and that those of a pod with a
// sandbox of its own do not follow them.
func (l *scenario) checkAddresses(fail func(string, ...any), before, after *corev1.PodStatus) {
	booted := l.booted
	l.booted = booted && len(l.hosts) == 0
	if l.ended || after.PodIP == "" {
		return
	}
	if len(l.hosts) > 0 && after.HostIP != l.hosts[0] {
		fail("the node has %s and the status %s", l.hosts, after.HostIP)
	}
	same := func(a, b corev1.PodIP) bool { return isSix(a.IP) == isSix(b.IP) }
	if !l.pod.Spec.HostNetwork && !booted && before.PodIP != "" && !slices.EqualFunc(before.PodIPs, after.PodIPs, same) {
		fail("the addresses change from %v to %v", before.PodIPs, after.PodIPs)
	}
}

func (l *scenario) running() string {
	for _, c := range l.observed.Containers {
		if c.State == Running {
			return c.ID
		}
	}
	return ""
}

// checkStuck checks that progress is possible, unless the pod runs or has ended.
func (l *scenario) checkStuck(out Output) {
	if len(l.inFlight) > 0 || !out.Wake.IsZero() || out.Ended {
		return
	}
	if l.running() == "" || l.unwanted {
		l.t.Errorf("nothing is going on, and nothing will")
	}
}

// happen applies a random event.
func (l *scenario) happen() {
	r := l.r
	switch n := r.Intn(100); {
	case n < 40 && len(l.inFlight) > 0:
		o := l.inFlight[r.Intn(len(l.inFlight))]
		result := Result{}
		if r.Intn(6) == 0 {
			result = randomFailure(r, o)
		}
		l.log("done %s: %s", show(o), result.Reason)
		l.finish(o, result)
	case n < 55 && !l.out.Wake.IsZero():
		l.now = l.out.Wake
		l.log("wake")
	case n < 60:
		l.now = l.now.Add(time.Duration(r.Intn(100)) * time.Second)
		l.log("time passes")
	case n < 80 && len(l.observed.Containers) > 0:
		l.disturb(&l.observed.Containers[r.Intn(len(l.observed.Containers))])
	case n < 84 && len(l.observed.Sandboxes) > 0:
		id := l.observed.Sandboxes[r.Intn(len(l.observed.Sandboxes))].ID
		l.log("dead %s", id)
		l.apply(Operation{Kind: StopSandbox, ID: id})
		l.observe()
	case n < 86 && len(l.inFlight) > 0:
		o := l.inFlight[r.Intn(len(l.inFlight))]
		l.log("half done %s", show(o))
		l.begin(o)
		l.observe()
	case n < 87:
		l.now = l.now.Add(-time.Duration(r.Intn(1000)) * time.Second)
		l.log("the clock is set back")
	case n < 89:
		l.log("restart")
		l.update()
		l.boot()
		l.booted = true
	case n < 91:
		c := &l.pod.Spec.Containers[r.Intn(len(l.pod.Spec.Containers))]
		c.Image += "1"
		l.log("image %s", c.Image)
		l.update()
	case n < 92:
		l.command()
	case n < 94:
		l.hosts = [][]string{nil, {"192.0.2.1"}, {"192.0.2.2", "2001:db8::2"}, {"2001:db8::3", "192.0.2.3"}}[r.Intn(4)]
		l.log("node %s", l.hosts)
	}
}

// command makes the pod deleted, removed or evicted.
func (l *scenario) command() {
	switch l.r.Intn(3) {
	case 0:
		now, grace := metav1.NewTime(l.now), int64(l.r.Intn(40))
		l.pod.DeletionTimestamp, l.pod.DeletionGracePeriodSeconds = &now, &grace
		l.log("delete")
		l.update()
	case 1:
		l.log("kill")
		l.pod.DeletionTimestamp = &metav1.Time{Time: l.now} // the podFailure does not survive an agent
		l.update()
		l.m.Kill("Evicted", "for want of memory", "memory is wanted", nil)
	case 2:
		l.log("reject")
		l.pod.DeletionTimestamp = &metav1.Time{Time: l.now}
		l.update()
		l.m.Reject("OutOfpods", "too many")
	}
	l.unwanted = true
}

// disturb applies a random event to a container.
func (l *scenario) disturb(c *Container) {
	r := l.r
	switch n := r.Intn(12); {
	case n < 6 && c.State == Running:
		code := int32(r.Intn(2))
		l.log("exit %s %d", c.ID, code)
		l.exit(c, code, "Error")
	case n < 7 && c.State == Running:
		l.log("unknown %s", c.ID)
		c.State = Unknown
	case n < 8 && c.State != Running:
		l.log("lose %s", c.ID)
		l.apply(Operation{Kind: RemoveContainer, ID: c.ID})
	case c.State == Running:
		p := ProbeResult{
			Kind: []ProbeKind{Startup, Readiness, Liveness}[r.Intn(3)], ContainerID: c.ID, Success: r.Intn(3) > 0,
		}
		l.log("%s of %s: %t", p.Kind, c.ID, p.Success)
		l.m.Probe(p)
	}
	l.observe()
}

func randomFailure(r *rand.Rand, o Operation) Result {
	reasons := []string{"FailedKillPod"}
	switch o.Kind {
	case SetUp:
		reasons = []string{"FailedMount"}
	case CreateSandbox:
		reasons = []string{"FailedCreatePodSandBox"}
	case StartContainer:
		reasons = []string{"ErrImagePull", "CreateContainerConfigError", "RunContainerError", "PostStartHookError"}
	}
	return Result{Reason: reasons[r.Intn(len(reasons))], Message: "no luck"}
}

// randomRules returns no restart rules, or one.
func randomRules(r *rand.Rand) []corev1.ContainerRestartRule {
	actions := []corev1.ContainerRestartRuleAction{"", corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers}
	action := actions[r.Intn(3)]
	if action == "" {
		return nil
	}
	exits := &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1}}
	return []corev1.ContainerRestartRule{{Action: action, ExitCodes: exits}}
}

// randomSpec returns a random pod spec.
func randomSpec(r *rand.Rand) corev1.PodSpec {
	var s corev1.PodSpec
	s.RestartPolicy = []corev1.RestartPolicy{"Always", "OnFailure", "Never"}[r.Intn(3)]
	s.HostNetwork = r.Intn(4) == 0
	grace := int64(r.Intn(40))
	s.TerminationGracePeriodSeconds = &grace
	if r.Intn(6) == 0 {
		deadline := int64(1 + r.Intn(200))
		s.ActiveDeadlineSeconds = &deadline
	}
	some := func(name string) corev1.Container {
		c := corev1.Container{Name: name, Image: "i"}
		if r.Intn(4) == 0 {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}}
		}
		return c
	}
	probed := func(c corev1.Container) corev1.Container {
		for _, p := range []**corev1.Probe{&c.StartupProbe, &c.ReadinessProbe, &c.LivenessProbe} {
			if r.Intn(3) == 0 {
				*p = &corev1.Probe{TerminationGracePeriodSeconds: &grace}
			}
		}
		return c
	}
	for i := range r.Intn(4) {
		c := some(fmt.Sprintf("i%d", i))
		if r.Intn(2) == 0 {
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			c.RestartPolicyRules = randomRules(r)
			c = probed(c)
		}
		s.InitContainers = append(s.InitContainers, c)
	}
	for i := range 1 + r.Intn(3) {
		c := probed(some(fmt.Sprintf("c%d", i)))
		if r.Intn(8) == 0 {
			never := corev1.ContainerRestartPolicyNever
			c.RestartPolicy = &never
			c.RestartPolicyRules = randomRules(r)
		}
		s.Containers = append(s.Containers, c)
	}
	for i := range r.Intn(2) {
		s.EphemeralContainers = append(s.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon(some(fmt.Sprintf("e%d", i))),
		})
	}
	return s
}
