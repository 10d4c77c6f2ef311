package queue

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/internal/golden"
)

// TestScripts runs the scripts of testdata. The commands:
//
//	set NAME [priority=N] [gated] [label=X]   adds or changes a pod
//	remove NAME
//	hold NAME, release NAME                   the pod's group is not complete, or is
//	pop                                       prints the next pod
//	take NAME                                 pops this pod
//	wait NAME EVENT[,EVENT...] [DURATION]     no node fits the pod
//	retry NAME                                another failure
//	endwait NAME                              retries the pod after its backoff
//	wake EVENT[,EVENT...] [NAME...]           the pods that the events may help; none means all
//	advance DURATION                          advances the clock
//	next                                      prints when to call Pop again
//	entered                                   prints which queues pods have entered since, and why
//	attempts NAME                             prints how often the pod was popped, and when first
//	pending                                   prints the number of pods in each queue
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		now := time.Unix(0, 0)
		q := New(func() time.Time { return now })
		var entered []string
		held := map[types.UID]bool{}
		q.Holds = func(pod *corev1.Pod) bool { return held[pod.UID] }
		q.Entered = func(name Name, cause Cause) {
			why := cause.Name
			if why == "" {
				why = "event " + string(rune('a'+bits.TrailingZeros32(uint32(cause.Events))))
			}
			entered = append(entered, fmt.Sprintf("%s: %s", name, why))
		}
		return func(c golden.Command) string {
			switch c.Name {
			case "entered":
				defer func() { entered = nil }()
				return strings.Join(entered, "\n")
			case "hold", "release":
				held[types.UID(c.Args[0])] = c.Name == "hold"
				q.Sync(types.UID(c.Args[0]))
				return ""
			case "pending":
				return fmt.Sprintf("active %d, backoff %d, unschedulable %d, gated %d", q.Pending(Active), q.Pending(Backoff), q.Pending(Unschedulable), q.Pending(Gated))
			case "attempts":
				n, first := q.Attempts(types.UID(c.Args[0]))
				return fmt.Sprintf("%d since %s", n, first.Sub(time.Unix(0, 0)))
			}
			return perform(t, q, &now, c.Name, c.Args)
		}
	})
}

func perform(t *testing.T, q *Queue, now *time.Time, command string, args []string) string {
	t.Helper()
	switch command {
	case "set":
		q.Set(parsePod(t, args))
	case "remove":
		q.Remove(types.UID(args[0]))
	case "pop":
		return nameOf(q.Pop())
	case "take":
		return nameOf(q.Take(types.UID(args[0])))
	case "wait":
		within := MaxWait
		if len(args) > 2 {
			var err error
			if within, err = time.ParseDuration(args[2]); err != nil {
				t.Fatal(err)
			}
		}
		q.Wait(types.UID(args[0]), parseEvents(args[1]), within)
	case "retry":
		q.Retry(types.UID(args[0]))
	case "endwait":
		q.EndWait(types.UID(args[0]))
	case "wake":
		helps := func(p *corev1.Pod) bool { return slices.Contains(args[1:], string(p.UID)) }
		if len(args) == 1 {
			helps = nil
		}
		q.Wake(parseEvents(args[0]), helps)
	case "advance":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			t.Fatal(err)
		}
		*now = now.Add(d)
	case "next":
		if next, ok := q.Next(); ok {
			return "in " + next.Sub(*now).String()
		}
		return "never"
	default:
		t.Fatalf("unknown command %q", command)
	}
	return ""
}

func nameOf(pod *corev1.Pod) string {
	if pod == nil {
		return "none"
	}
	return string(pod.UID)
}

func parsePod(t *testing.T, args []string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	pod.UID = types.UID(args[0])
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "priority":
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			pod.Spec.Priority = ptr.To(int32(n))
		case "gated":
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "gate"}}
		case "label":
			pod.Labels = map[string]string{"label": value}
		case "message":
			pod.Status.Message = value
		default:
			t.Fatalf("unknown property %q", arg)
		}
	}
	return pod
}

// parseEvents gives each letter a bit.
func parseEvents(s string) Events {
	var events Events
	for name := range strings.SplitSeq(s, ",") {
		events |= 1 << (name[0] - 'a')
	}
	return events
}

// TestNoPodIsLost calls the queue at random and compares it with a simple model of
// the pods that can be popped.
func TestNoPodIsLost(t *testing.T) {
	m := newModel()
	for step := range 200_000 {
		if problem := m.step(types.UID(fmt.Sprint(step))); problem != "" {
			t.Fatalf("step %d: %s", step, problem)
		}
	}
	if left := m.drain(); len(left) > 0 || len(m.q.entries) > 0 || len(m.q.waitingFor) > 0 {
		t.Errorf("these pods are never popped: %v", left)
	}
}

// model has the state that each pod of a queue must have.
type model struct {
	random *rand.Rand
	now    time.Time
	q      *Queue
	pods   map[types.UID]string // active, waiting, failed or inflight
}

func newModel() *model {
	m := &model{random: rand.New(rand.NewPCG(1, 2)), now: time.Unix(0, 0), pods: map[types.UID]string{}}
	m.q = New(func() time.Time { return m.now })
	return m
}

// pick returns any pod in the state, or "" if there is none.
func (m *model) pick(state string) types.UID {
	var uids []types.UID
	for uid, s := range m.pods {
		if s == state {
			uids = append(uids, uid)
		}
	}
	if len(uids) == 0 {
		return ""
	}
	slices.Sort(uids)
	return uids[m.random.IntN(len(uids))]
}

// step does something by chance, to a new pod with the UID or to an older one, and returns
// what the queue did wrong.
func (m *model) step(uid types.UID) string {
	switch m.random.IntN(9) {
	case 0:
		if len(m.pods) < 30 {
			pod := &corev1.Pod{}
			pod.UID, pod.Spec.Priority = uid, ptr.To(int32(m.random.IntN(3)))
			m.q.Set(pod)
			m.pods[uid] = "active"
		}
	case 1, 2:
		return m.pop()
	case 3:
		if uid := m.pick("inflight"); uid != "" {
			m.q.Wait(uid, 1<<m.random.IntN(3), MaxWait)
			m.pods[uid] = "waiting"
		}
	case 4:
		if uid := m.pick("inflight"); uid != "" {
			m.q.Retry(uid)
			m.pods[uid] = "failed"
		}
	case 5:
		m.q.Wake(7, nil)
		for uid, s := range m.pods {
			if s == "waiting" {
				m.pods[uid] = "active"
			}
		}
	case 6:
		if uid := m.pick([]string{"active", "waiting", "failed", "inflight"}[m.random.IntN(4)]); uid != "" {
			m.q.Remove(uid)
			delete(m.pods, uid)
		}
	case 7:
		m.now = m.now.Add(time.Duration(m.random.IntN(3)) * time.Second)
	case 8:
		if uid := m.pick("waiting"); uid != "" {
			m.q.EndWait(uid)
			m.pods[uid] = "failed"
		}
	}
	return ""
}

// pop takes a pod from the queue, and returns what is wrong with it.
func (m *model) pop() string {
	pod := m.q.Pop()
	switch {
	case pod == nil && m.pick("active") != "":
		return fmt.Sprintf("%s is not popped", m.pick("active"))
	case pod != nil && m.pods[pod.UID] == "inflight":
		return fmt.Sprintf("%s is popped twice", pod.UID)
	case pod != nil && m.pods[pod.UID] == "":
		return fmt.Sprintf("%s is popped after its removal", pod.UID)
	case pod != nil:
		m.pods[pod.UID] = "inflight"
	}
	return ""
}

// drain pops all pods, after the longest delays, and returns those that never come.
func (m *model) drain() map[types.UID]string {
	m.now = m.now.Add(MaxWait)
	for uid, s := range m.pods {
		if s == "inflight" {
			m.q.Retry(uid)
		}
	}
	m.now = m.now.Add(MaxBackoff)
	for pod := m.q.Pop(); pod != nil; pod = m.q.Pop() {
		delete(m.pods, pod.UID)
		m.q.Remove(pod.UID)
	}
	return m.pods
}
