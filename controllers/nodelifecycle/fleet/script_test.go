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

// TestScripts plays the scripts in testdata. The output of a command is what happens
// next, with the time since the start. The commands:
//
//	config NAME=VALUE...       before the first node: grace, startup, rate, secondary, large, unhealthy
//	nodes NAME... [zone=Z] [excluded] [ready=STATUS|none] [tainted]
//	                           adds nodes; they renew their leases every 10 s, in turn
//	stop NAME...               nodes stop sending heartbeats
//	post NAME... ready=STATUS  nodes post a status, and send heartbeats from now on
//	untaint NAME...            another client removes the taints of nodes
//	delete NAME...             nodes are deleted
//	restart                    the controller restarts with a new fleet
//	run DURATION               the clock advances
//	state                      prints the zones
//
// A name like n1..5 stands for n1 to n5. The player executes verdicts, as the
// controller does.
func TestScripts(t *testing.T) {
	golden.Run(t, newPlayer)
}

// player has a fleet, its nodes and the clock.
type player struct {
	config   Config
	fleet    *Fleet
	now      time.Time
	nodes    map[string]*corev1.Node
	renewals map[string]time.Time // when each node renews its lease next
	requeued map[string]time.Time // when each node is synced next
	out      strings.Builder
}

var start = time.Unix(1_000_000, 0)

const renewPeriod = 10 * time.Second

func newPlayer(t *testing.T) golden.Handler {
	p := &player{
		config: Config{
			GracePeriod: 50 * time.Second, StartupGracePeriod: time.Minute,
			EvictionRate: 0.1, SecondaryEvictionRate: 0.01, LargeZone: 50, UnhealthyZone: 0.55,
		},
		now: start, nodes: map[string]*corev1.Node{}, renewals: map[string]time.Time{}, requeued: map[string]time.Time{},
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
			p.renewals[n] = p.now.Add(renewPeriod * time.Duration(i+1) / time.Duration(len(names)))
		}
		for _, n := range names {
			p.sync(n)
		}
	case "stop":
		for _, n := range names {
			delete(p.renewals, n)
		}
	case "post":
		for _, n := range names {
			p.renewals[n] = p.now.Add(renewPeriod)
			setReady(p.nodes[n], options["ready"], p.now)
			p.sync(n)
		}
	case "untaint":
		for _, n := range names {
			p.nodes[n].Spec.Taints = nil
			p.sync(n)
		}
	case "delete":
		for _, n := range names {
			p.fleet.Gone(n)
			delete(p.nodes, n)
			delete(p.renewals, n)
			delete(p.requeued, n)
		}
	case "restart":
		p.fleet, p.requeued = New(p.config, p.now), map[string]time.Time{}
		names := slices.Sorted(maps.Keys(p.nodes))
		for _, n := range names {
			p.fleet.Observe(p.nodes[n], p.now)
		}
		for _, n := range names {
			p.sync(n)
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
			p.report("zone %s: %s, %d of %d not ready, %g nodes/s, waiting %v", strings.Trim(strings.ReplaceAll(n, "\x00", ""), ":"), z.state, z.notReady, z.counted, z.rate, z.waiting)
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
		next, name, renews := end.Add(1), "", false
		for _, of := range []map[string]time.Time{p.renewals, p.requeued} {
			for _, n := range slices.Sorted(maps.Keys(of)) {
				if at := of[n]; at.Before(next) {
					next, name, renews = at, n, at.Equal(p.renewals[n])
				}
			}
		}
		if name == "" {
			p.now = end
			return
		}
		p.now = next
		if renews {
			p.renewals[name] = next.Add(renewPeriod)
			p.fleet.Renewed(name, next, next)
			p.syncAffected()
		} else {
			delete(p.requeued, name)
			p.sync(name)
		}
	}
}

// sync decides on a node and executes the verdict, as the controller does.
func (p *player) sync(name string) {
	n := p.nodes[name]
	v := p.fleet.Decide(n, p.now)
	if v.Unreachable {
		p.report("%s is unreachable", name)
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
			p.report("%s is not tainted any more", name)
		} else {
			p.report("%s is tainted: %s", name, strings.TrimPrefix(v.Taint, "node.kubernetes.io/"))
		}
		n.Spec.Taints = nil
		if v.Taint != "" {
			n.Spec.Taints = []corev1.Taint{{Key: v.Taint, Effect: corev1.TaintEffectNoExecute}}
		}
		p.fleet.Observe(n, p.now)
	}
	if delete(p.requeued, name); !v.Requeue.IsZero() {
		p.requeued[name] = v.Requeue
	}
	p.syncAffected()
}

func (p *player) syncAffected() {
	for _, n := range p.fleet.Affected() {
		p.sync(n)
	}
}

func (p *player) report(format string, args ...any) {
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
