package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/internal/golden"
)

// TestScripts plays the scripts in testdata. The output of a
// command is what happens then, with its time. The commands:
//
//	config NAME=VALUE...       before the first node: grace, startup, rate, secondary, large, unhealthy
//	nodes NAME... [zone=Z] [excluded] [ready=STATUS|none] [tainted]
//	                           nodes that beat: they renew their leases every 10 s, in turn
//	die NAME...                nodes fall silent
//	post NAME... ready=STATUS  nodes live and post a status
//	untaint NAME...            another client removes the taints of nodes
//	delete NAME...             nodes are deleted
//	restart                    everything that the fleet knows is lost
//	run DURATION               the time goes on
//	state                      what the zones are like
//
// A name like n1..5 stands for n1 to n5. The player does what verdicts say, as
// the controller does.
func TestScripts(t *testing.T) {
	golden.Run(t, newPlayer)
}

// player plays a fleet, its nodes and the clock.
type player struct {
	config Config
	fleet  *Fleet
	now    time.Time
	nodes  map[string]*corev1.Node
	beats  map[string]time.Time // when living nodes renew their leases next
	again  map[string]time.Time
	out    strings.Builder
}

var start = time.Unix(1_000_000, 0)

const beat = 10 * time.Second

func newPlayer(t *testing.T) golden.Handler {
	p := &player{
		config: Config{
			GracePeriod: 50 * time.Second, StartupGracePeriod: time.Minute,
			EvictionRate: 0.1, SecondaryEvictionRate: 0.01, LargeZone: 50, UnhealthyZone: 0.55,
		},
		now: start, nodes: map[string]*corev1.Node{}, beats: map[string]time.Time{}, again: map[string]time.Time{},
	}
	return func(c golden.Command) string {
		p.out.Reset()
		p.command(t, c.Name, c.Args)
		return p.out.String()
	}
}

func (p *player) command(t *testing.T, name string, args []string) {
	names, options := parse(t, args)
	if p.fleet == nil && name != "config" {
		p.fleet = New(p.config, p.now)
	}
	switch name {
	case "config":
		for key, value := range options {
			p.set(t, key, value)
		}
	case "nodes":
		for i, n := range names {
			p.add(n, options)
			p.beats[n] = p.now.Add(beat * time.Duration(i+1) / time.Duration(len(names)))
		}
		for _, n := range names {
			p.look(n)
		}
	case "die":
		for _, n := range names {
			delete(p.beats, n)
		}
	case "post":
		for _, n := range names {
			p.beats[n] = p.now.Add(beat)
			setReady(p.nodes[n], options["ready"], p.now)
			p.look(n)
		}
	case "untaint":
		for _, n := range names {
			p.nodes[n].Spec.Taints = nil
			p.look(n)
		}
	case "delete":
		for _, n := range names {
			p.fleet.Gone(n)
			delete(p.nodes, n)
			delete(p.beats, n)
			delete(p.again, n)
		}
	case "restart":
		p.fleet, p.again = New(p.config, p.now), map[string]time.Time{}
		names := slices.Sorted(maps.Keys(p.nodes))
		for _, n := range names {
			p.fleet.Observe(p.nodes[n], p.now)
		}
		for _, n := range names {
			p.look(n)
		}
	case "run":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			t.Fatal(err)
		}
		p.run(p.now.Add(d))
	case "state":
		for _, n := range slices.Sorted(maps.Keys(p.fleet.zones)) {
			z := p.fleet.zones[n]
			p.say("zone %s: %s, %d of %d not ready, %g nodes/s, waiting %v", strings.Trim(strings.ReplaceAll(n, "\x00", ""), ":"), z.state, z.notReady, z.counted, z.rate, z.waiting)
		}
	default:
		t.Fatalf("no such command: %s", name)
	}
}

func (p *player) set(t *testing.T, key, value string) {
	d, _ := time.ParseDuration(value)
	x, _ := strconv.ParseFloat(value, 64)
	switch key {
	case "grace":
		p.config.GracePeriod = d
	case "startup":
		p.config.StartupGracePeriod = d
	case "rate":
		p.config.EvictionRate = x
	case "secondary":
		p.config.SecondaryEvictionRate = x
	case "large":
		p.config.LargeZone = int(x)
	case "unhealthy":
		p.config.UnhealthyZone = x
	default:
		t.Fatalf("no such configuration: %s", key)
	}
}

func (p *player) add(name string, options map[string]string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}}}
	if z := options["zone"]; z != "" {
		n.Labels[corev1.LabelTopologyZone] = z
	}
	if _, ok := options["excluded"]; ok {
		n.Labels["node.kubernetes.io/exclude-disruption"] = ""
	}
	ready := options["ready"]
	if ready == "" {
		ready = "True"
	}
	setReady(n, ready, p.now)
	if _, ok := options["tainted"]; ok {
		n.Spec.Taints = []corev1.Taint{{Key: evictionTaint(corev1.ConditionStatus(ready)), Effect: corev1.TaintEffectNoExecute}}
	}
	p.nodes[name] = n
	p.fleet.Observe(n, p.now)
}

// run sends the heartbeats of reachable nodes and syncs requeued nodes, until end.
func (p *player) run(end time.Time) {
	for {
		next, name, beats := end.Add(1), "", false
		for _, of := range []map[string]time.Time{p.beats, p.again} {
			for _, n := range slices.Sorted(maps.Keys(of)) {
				if at := of[n]; at.Before(next) {
					next, name, beats = at, n, at.Equal(p.beats[n])
				}
			}
		}
		if name == "" {
			p.now = end
			return
		}
		p.now = next
		if beats {
			p.beats[name] = next.Add(beat)
			p.fleet.Renewed(name, next, next)
			p.wake()
		} else {
			delete(p.again, name)
			p.look(name)
		}
	}
}

// look does what the controller does.
func (p *player) look(name string) {
	n := p.nodes[name]
	v := p.fleet.Decide(n, p.now)
	if v.Unreachable {
		p.say("%s is dead", name)
		for _, t := range Posted() {
			if c := condition(n, t); c != nil {
				c.Status = corev1.ConditionUnknown
			} else {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: t, Status: corev1.ConditionUnknown})
			}
		}
		v = p.fleet.Decide(n, p.now)
	}
	before := ""
	if i := slices.IndexFunc(n.Spec.Taints, IsEvictionTaint); i >= 0 {
		before = n.Spec.Taints[i].Key
	}
	if v.Taint != before {
		if v.Taint == "" {
			p.say("%s is not tainted any more", name)
		} else {
			p.say("%s is tainted: %s", name, strings.TrimPrefix(v.Taint, "node.kubernetes.io/"))
		}
		n.Spec.Taints = nil
		if v.Taint != "" {
			n.Spec.Taints = []corev1.Taint{{Key: v.Taint, Effect: corev1.TaintEffectNoExecute}}
		}
		p.fleet.Observe(n, p.now)
	}
	if delete(p.again, name); !v.Requeue.IsZero() {
		p.again[name] = v.Requeue
	}
	p.wake()
}

func (p *player) wake() {
	for _, n := range p.fleet.Affected() {
		p.look(n)
	}
}

func (p *player) say(format string, args ...any) {
	fmt.Fprintf(&p.out, "%gs %s\n", p.now.Sub(start).Seconds(), fmt.Sprintf(format, args...))
}

// parse separates names from options.
func parse(t *testing.T, args []string) ([]string, map[string]string) {
	var names []string
	options := map[string]string{}
	for _, arg := range args {
		key, value, assigned := strings.Cut(arg, "=")
		first, last, several := strings.Cut(arg, "..")
		switch {
		case assigned, arg == "excluded", arg == "tainted":
			options[key] = value
		case several:
			prefix := strings.TrimRight(first, "0123456789")
			from, _ := strconv.Atoi(first[len(prefix):])
			to, err := strconv.Atoi(last)
			if err != nil {
				t.Fatal(err)
			}
			for i := from; i <= to; i++ {
				names = append(names, fmt.Sprint(prefix, i))
			}
		default:
			names = append(names, arg)
		}
	}
	return names, options
}

func setReady(n *corev1.Node, status string, now time.Time) {
	n.Status.Conditions = nil
	if status != "none" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionStatus(status), LastHeartbeatTime: metav1.NewTime(now)}}
	}
}
