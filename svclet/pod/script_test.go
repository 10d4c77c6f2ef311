package pod

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/internal/golden"
)

// TestScripts plays the golden scripts in testdata: steps, each followed by the
// machine's output. An operation ends when the script says so.
//
//	pod [static|unasked] / YAML  a pod with this spec (further lines, indented) is
//	                            added; unasked: without a call of Next
//	edit / YAML                 the pod's object changes
//	go                          all operations succeed, until none is in flight
//	done OPERATION              an operation succeeds; named by words of its output
//	keep OPERATION              a set-up succeeds, and the cgroup keeps a limit of memory
//	fail OPERATION: REASON TEXT an operation fails
//	refuse OPERATION: REASON TEXT an operation fails, and the node refuses the pod
//	cancelled                   the cancelled operations end
//	exit NAME CODE [REASON]     a container exits
//	state NAME STATE            the runtime reports this state of a container
//	lose ID                     the runtime no longer has a container
//	dead ID / ready ID          a sandbox becomes not ready, or ready
//	started|live|ready NAME yes|no  the result of a probe
//	tick DURATION / wake        time passes, or passes until the output's Wake
//	objects                     API objects change to which the pod refers
//	delete [SECONDS], remove, kill REASON TEXT [SECONDS], reject REASON TEXT
//	evict REASON TEXT [SECONDS] like kill, without a disruption condition
//	pend REASON TEXT, pend      a resize is pending, or is not any more
//	restart [resized]           the agent restarts; resized: after a resize
//	orphan                      the agent restarts, and only the runtime has the pod
//	probes, status, again       show the probes or the whole status, or call Next
//
// Of the status, only changed lines are shown.
func TestScripts(t *testing.T) {
	golden.Run(t, newPlayer)
}

// newPlayer returns a handler that begins without a pod.
func newPlayer(t *testing.T) golden.Handler {
	p := &player{t: t}
	return func(c golden.Command) string {
		p.said = nil
		p.step(c.Name, c.Text, c.Body)
		if len(p.said) == 0 && c.Text != "unasked" {
			return "nothing"
		}
		return strings.Join(p.said, "\n")
	}
}

// player applies the commands of a script to an environment.
type player struct {
	t     *testing.T
	w     *environment
	shown []string
	said  []string
}

func (p *player) step(verb, rest, more string) {
	p.t.Helper()
	w, words := p.w, strings.Fields(rest)
	switch verb {
	case "pod":
		var spec corev1.PodSpec
		p.parse(more, &spec)
		p.w, p.shown = newEnvironment(p.t, spec), nil
		if rest == "static" {
			p.w.pod.Annotations = map[string]string{sourceAnnotation: "file"}
		}
		p.w.boot()
		if rest == "unasked" {
			return
		}
	case "edit":
		p.parse(more, w.pod)
		w.pod.Generation++
		w.update()
	case "restart":
		w.resized = rest == "resized"
		w.boot()
	case "go":
		p.run()
		return
	case "done", "keep":
		w.finish(p.operation(rest), Result{KeptMemory: verb == "keep"})
	case "fail", "refuse":
		name, cause, _ := strings.Cut(rest, ": ")
		reason, text, _ := strings.Cut(cause, " ")
		w.finish(p.operation(name), Result{Reason: reason, Message: text, Rejected: verb == "refuse"})
	case "cancelled":
		for _, c := range w.cancelled {
			w.m.Done(c, Result{Cancelled: true, Reason: "Cancelled"})
		}
		w.cancelled = nil
	case "status":
		p.status()
		return
	case "probes":
		for _, probe := range w.next().Probes {
			p.say("%s of %s since %s", probe.Kind, probe.ContainerID, probe.Since.Sub(epoch))
		}
		return
	case "again":
	default:
		p.happen(verb, words)
	}
	p.printOutput(p.w.next())
}

// happen applies events of the runtime, of probes, of users and of time.
func (p *player) happen(verb string, words []string) {
	p.t.Helper()
	w := p.w
	switch verb {
	case "exit":
		reason := "Error"
		if words[1] == "0" {
			reason = "Completed"
		}
		if len(words) > 2 {
			reason = words[2]
		}
		w.exit(w.newest(words[0]), int32(p.number(words[1])), reason)
		w.observe()
	case "state":
		w.newest(words[0]).State = State(words[1])
		w.observe()
	case "lose":
		w.apply(Operation{Kind: RemoveContainer, ID: words[0]})
		w.apply(Operation{Kind: RemoveSandbox, ID: words[0]})
		w.observe()
	case "dead":
		w.apply(Operation{Kind: StopSandbox, ID: words[0]})
		w.observe()
	case "started", "live", "ready":
		kind := map[string]ProbeKind{"started": Startup, "live": Liveness, "ready": Readiness}[verb]
		w.m.Probe(ProbeResult{Kind: kind, ContainerID: w.newest(words[0]).ID, Success: words[1] == "yes"})
	case "tick":
		d, err := time.ParseDuration(words[0])
		if err != nil {
			p.t.Fatal(err)
		}
		w.now = w.now.Add(d)
	case "wake":
		if w.out.Wake.IsZero() {
			p.t.Fatal("the machine does not want to be woken")
		}
		w.now = w.out.Wake
	case "objects":
		w.m.ObjectsChanged()
	case "delete":
		now := metav1.NewTime(w.now)
		grace := *w.pod.Spec.TerminationGracePeriodSeconds
		if len(words) > 0 {
			grace = p.number(words[0])
		}
		w.pod.DeletionTimestamp, w.pod.DeletionGracePeriodSeconds = &now, &grace
		w.update()
	case "remove":
		w.m.Remove()
	case "orphan":
		w.orphan()
		w.m.Remove()
	case "kill", "evict":
		var grace *int64
		if n, err := strconv.ParseInt(words[len(words)-1], 10, 64); err == nil {
			grace, words = &n, words[:len(words)-1]
		}
		message := strings.Join(words[1:], " ")
		disruption := ""
		if verb == "kill" {
			disruption = "The node says: " + message
		}
		w.m.Kill(words[0], message, disruption, grace)
	case "pend":
		var pending *PendingResize
		if len(words) > 0 {
			pending = &PendingResize{Reason: words[0], Message: strings.Join(words[1:], " ")}
		}
		w.m.Pend(pending)
	case "reject":
		w.m.Reject(words[0], strings.Join(words[1:], " "))
	default:
		p.t.Fatalf("unknown step %q", verb)
	}
}

// run completes operations until none is in flight.
func (p *player) run() {
	w := p.w
	for range 100 {
		if len(w.inFlight) == 0 {
			return
		}
		w.finish(w.inFlight[0], Result{})
		p.printOutput(w.next())
	}
	p.t.Fatal("it never comes to rest")
}

// operation finds an operation in flight by its words.
func (p *player) operation(words string) Operation {
	p.t.Helper()
	for _, o := range p.w.inFlight {
		if strings.HasPrefix(show(o), words) {
			return o
		}
	}
	p.t.Fatalf("%q is not under way: %v", words, p.w.inFlight)
	return Operation{}
}

func (p *player) parse(text string, into any) {
	p.t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		p.t.Fatal(err)
	}
}

func (p *player) number(s string) int64 {
	p.t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *player) say(format string, args ...any) {
	p.said = append(p.said, fmt.Sprintf(format, args...))
}

// printOutput writes the output of Next, and the changed lines of the status.
func (p *player) printOutput(out Output) {
	for _, e := range out.Events {
		about := ""
		if e.Container != "" {
			about = " (" + e.Container + ")"
		}
		p.say("event %s %s%s: %s", e.Type, e.Reason, about, e.Message)
	}
	for _, o := range out.Start {
		p.say("do %s", show(o))
	}
	lines := summary(&out)
	for _, l := range lines {
		if !slices.Contains(p.shown, l) {
			p.say("%s", l)
		}
	}
	p.shown = lines
	if !out.Wake.IsZero() {
		p.say("wake in %s", out.Wake.Sub(p.w.now))
	}
}

// show formats an operation in one line.
func show(o Operation) string {
	s := string(o.Kind)
	switch o.Kind {
	case StartContainer:
		s += fmt.Sprintf(" %s attempt %d in %s", o.Name, o.Attempt, o.SandboxID)
	case CreateSandbox:
		s += fmt.Sprintf(" attempt %d", o.Attempt)
	case Cancel:
		s += " " + strings.TrimSpace("start of "+o.Name)
	case SetUp, TearDown:
	case ResizePod:
		if o.Grow {
			s += " upwards"
		}
	default:
		s += " " + o.ID
	}
	if o.Kind == StopContainer || o.Kind == PreStop {
		s += fmt.Sprintf(" within %s", o.Grace)
	}
	if o.Hook {
		s += " after its hook"
	}
	if o.Kill {
		s += ", at once"
	}
	if o.KeepLog {
		s += ", not its log"
	}
	return s
}

// summary formats a status in lines.
func summary(out *Output) []string {
	s := &out.Status
	phase := "pod is " + string(s.Phase)
	if s.Reason != "" || s.Message != "" {
		phase += fmt.Sprintf(" %s: %s", s.Reason, s.Message)
	}
	lines := []string{phase}
	for _, c := range s.Conditions {
		line := fmt.Sprintf("%s=%s", c.Type, c.Status)
		if c.Reason != "" {
			line += " " + c.Reason
		}
		if c.Message != "" {
			line += ": " + c.Message
		}
		if c.Type != corev1.PodScheduled && c.Type != corev1.ContainersReady {
			lines = append(lines, line)
		}
	}
	for _, list := range [][]corev1.ContainerStatus{
		s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses,
	} {
		for _, c := range list {
			lines = append(lines, brief(c))
		}
	}
	if s.PodIP != "" {
		lines = append(lines, "address "+s.PodIP)
	}
	if out.Ended {
		lines = append(lines, "ended")
	}
	if out.Released {
		lines = append(lines, "released")
	}
	return lines
}

// brief formats a container's status in one line.
func brief(c corev1.ContainerStatus) string {
	s := c.Name + " is " + briefState(c.State)
	if c.State.Running != nil && c.Started != nil && !*c.Started {
		s += " not started"
	}
	if c.Ready {
		s += " ready"
	}
	if c.RestartCount > 0 {
		s += fmt.Sprintf(", restarts %d", c.RestartCount)
	}
	if c.LastTerminationState != (corev1.ContainerState{}) {
		s += ", was " + briefState(c.LastTerminationState)
	}
	return s
}

func briefState(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("terminated %s %d", s.Terminated.Reason, s.Terminated.ExitCode)
	case s.Waiting != nil && s.Waiting.Message != "":
		return fmt.Sprintf("waiting %s (%s)", s.Waiting.Reason, s.Waiting.Message)
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason
	default:
		return "nothing"
	}
}

// status formats the whole status.
func (p *player) status() {
	text, err := yaml.Marshal(p.w.out.Status)
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		p.say("%s", strings.TrimRight(line, "\n"))
	}
}
