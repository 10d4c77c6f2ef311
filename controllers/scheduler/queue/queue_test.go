package queue

import (
	"fmt"
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

// TestScripts runs the scripts of testdata. Each line is a command; what it
// prints follows "->":
//
//	set NAME [priority=N] [gated] [label=X]   a pod comes or changes
//	remove NAME
//	pop                                       prints the pod whose turn it is
//	wait NAME EVENT[,EVENT...]                there is no node for it
//	retry NAME                                something else failed
//	wake EVENT[,EVENT...] [NAME...]           names are those that it may help, none is all
//	turn DURATION                             of the clock
//	next                                      prints when to look again
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		now := time.Unix(0, 0)
		q := New(func() time.Time { return now })
		return func(c golden.Command) string { return perform(t, q, &now, c.Name, c.Args) }
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
		if pod := q.Pop(); pod != nil {
			return string(pod.UID)
		}
		return "none"
	case "wait":
		q.Wait(types.UID(args[0]), parseEvents(args[1]))
	case "retry":
		q.Retry(types.UID(args[0]))
	case "wake":
		helps := func(p *corev1.Pod) bool { return slices.Contains(args[1:], string(p.UID)) }
		if len(args) == 1 {
			helps = nil
		}
		q.Wake(parseEvents(args[0]), helps)
	case "turn":
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

// TestNoPodIsLost drives the queue at random and compares it with the simplest
// model of who may come next.
func TestNoPodIsLost(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(0, 0)
	q := New(func() time.Time { return now })
	model := map[types.UID]string{} // active, waiting, failed or taken
	pick := func(state string) types.UID {
		var uids []types.UID
		for uid, s := range model {
			if s == state {
				uids = append(uids, uid)
			}
		}
		if len(uids) == 0 {
			return ""
		}
		slices.Sort(uids)
		return uids[random.IntN(len(uids))]
	}
	for step := range 200_000 {
		switch random.IntN(8) {
		case 0:
			if len(model) < 30 {
				uid := types.UID(fmt.Sprint(step))
				pod := &corev1.Pod{}
				pod.UID, pod.Spec.Priority = uid, ptr.To(int32(random.IntN(3)))
				q.Set(pod)
				model[uid] = "active"
			}
		case 1, 2:
			pod := q.Pop()
			switch {
			case pod == nil && pick("active") != "":
				t.Fatalf("step %d: %s does not come", step, pick("active"))
			case pod != nil && model[pod.UID] == "taken":
				t.Fatalf("step %d: %s comes twice", step, pod.UID)
			case pod != nil && model[pod.UID] == "":
				t.Fatalf("step %d: %s comes though it is gone", step, pod.UID)
			case pod != nil:
				model[pod.UID] = "taken"
			}
		case 3:
			if uid := pick("taken"); uid != "" {
				q.Wait(uid, 1<<random.IntN(3))
				model[uid] = "waiting"
			}
		case 4:
			if uid := pick("taken"); uid != "" {
				q.Retry(uid)
				model[uid] = "failed"
			}
		case 5:
			q.Wake(7, nil)
			for uid, s := range model {
				if s == "waiting" {
					model[uid] = "active"
				}
			}
		case 6:
			if uid := pick([]string{"active", "waiting", "failed", "taken"}[random.IntN(4)]); uid != "" {
				q.Remove(uid)
				delete(model, uid)
			}
		case 7:
			now = now.Add(time.Duration(random.IntN(3)) * time.Second)
		}
	}
	now = now.Add(MaxWait)
	for uid, s := range model {
		if s == "taken" {
			q.Retry(uid)
		}
	}
	now = now.Add(MaxBackoff)
	for pod := q.Pop(); pod != nil; pod = q.Pop() {
		delete(model, pod.UID)
		q.Remove(pod.UID)
	}
	if len(model) > 0 || len(q.entries) > 0 || len(q.listening) > 0 {
		t.Errorf("these never come: %v", model)
	}
}
