package decision

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var runs = flag.Int("runs", 300, "the number of random clusters")

// TestIncrementalSnapshotDecidesLikeANewOne changes random clusters, and compares the
// decisions of the snapshot with those of a new snapshot and of the naive rules.
func TestIncrementalSnapshotDecidesLikeANewOne(t *testing.T) {
	for seed := range uint64(*runs) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { runCluster(t, seed) }) {
			return
		}
	}
}

// clusterState has the objects of a cluster, and the snapshot that is updated with them.
type clusterState struct {
	*rand.Rand
	snapshot   *Snapshot
	nodes      map[string]*corev1.Node
	pods       map[string]*corev1.Pod
	namespaces map[string]*corev1.Namespace
	nominated  map[string]*corev1.Pod // by UID; spec.nodeName is the node
	created    int                    // the number of pods
	log        []string
}

func runCluster(t *testing.T, seed uint64) {
	w := &clusterState{
		Rand: rand.New(rand.NewPCG(seed, 0)), snapshot: NewSnapshot(),
		nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}, namespaces: map[string]*corev1.Namespace{},
		nominated: map[string]*corev1.Pod{},
	}
	for step := range 80 {
		w.change()
		if step%10 == 0 {
			w.check(t)
		}
		if t.Failed() {
			t.Log(strings.Join(w.log, "\n"))
			return
		}
	}
}

// change changes one random object.
func (w *clusterState) change() {
	switch w.IntN(14) {
	case 0, 1, 2:
		line := w.nodeLine(w.nodeName())
		w.record("node " + line)
		n := parseNode(line)
		w.nodes[n.Name] = n
		w.snapshot.SetNode(n)
	case 3:
		name := w.nodeName()
		w.record("remove node " + name)
		delete(w.nodes, name)
		w.snapshot.RemoveNode(name)
	case 4:
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.one("default", "n1", "n2"), Labels: map[string]string{"team": w.one("a", "b")}}}
		w.record("namespace " + ns.Name + " {team=" + ns.Labels["team"] + "}")
		w.namespaces[ns.Name] = ns
		w.snapshot.SetNamespace(ns)
	case 5, 6:
		for _, key := range slices.Sorted(maps.Keys(w.pods)) {
			w.record("remove pod " + key)
			w.snapshot.RemovePod(w.pods[key])
			delete(w.pods, key)
			break
		}
	case 7: // a pod that found its node
		pod := parsePod(w.podLine(fmt.Sprint("new", w.IntN(5))))
		if d := w.snapshot.Decide(pod, w.IntN); d.Node != "" {
			pod.Spec.NodeName = d.Node
			pod.UID = types.UID(fmt.Sprint(pod.UID, "-", w.next()))
			w.setPod(pod)
		}
	case 8:
		w.changePod()
	case 9, 10:
		w.changeNomination()
	default:
		w.setPod(parsePod(w.podLine(fmt.Sprint("pod", w.next())) + " on=" + w.nodeName() + w.maybe(0.1, "deleting", "ended")))
	}
}

// changeNomination nominates a pod, or ends the nomination of one, which may be placed.
func (w *clusterState) changeNomination() {
	if len(w.nominated) == 0 || w.IntN(2) == 0 {
		w.nominate(parsePod(w.podLine(fmt.Sprint("nominated", w.next())) + " on=" + w.nodeName()))
		return
	}
	pod := w.nominated[slices.Sorted(maps.Keys(w.nominated))[0]]
	w.record(fmt.Sprintf("end of the nomination of %s", pod.UID))
	delete(w.nominated, string(pod.UID))
	w.snapshot.Nominate(pod, "")
	if w.IntN(2) == 0 {
		w.setPod(pod)
	}
}

func (w *clusterState) nominate(pod *corev1.Pod) {
	w.record(fmt.Sprintf("nominated %s to %s %v", pod.UID, pod.Spec.NodeName, pod.Labels))
	w.nominated[string(pod.UID)] = pod
	w.snapshot.Nominate(pod, pod.Spec.NodeName)
}

// changePod changes a mutable field of a pod that has a node.
func (w *clusterState) changePod() {
	if len(w.pods) == 0 {
		return
	}
	pod := w.pods[slices.Sorted(maps.Keys(w.pods))[0]].DeepCopy()
	switch w.IntN(6) {
	case 0:
		pod.Labels = map[string]string{"app": w.app()}
	case 1:
		pod.DeletionTimestamp = &metav1.Time{}
	case 2:
		pod.Spec.Containers[0].Resources.Requests = quantities("cpu=" + w.one("1", "2"))
	case 3:
		pod.OwnerReferences = nil
	case 4:
		pod.Spec.NodeName = w.nodeName() // it was assumed elsewhere
	case 5:
		pod.Status.Phase = corev1.PodPhase(w.one("Running", "Failed"))
	}
	w.setPod(pod)
}

func (w *clusterState) next() int {
	w.created++
	return w.created
}

func (w *clusterState) record(line string) { w.log = append(w.log, line) }

func (w *clusterState) setPod(pod *corev1.Pod) {
	w.record(fmt.Sprintf("pod %s on=%s %v", pod.UID, pod.Spec.NodeName, pod.Labels))
	w.snapshot.SetPod(pod)
	if delete(w.pods, string(pod.UID)); occupies(pod) {
		w.pods[string(pod.UID)] = pod
	}
}

// check compares the snapshot with a new one of the same objects, and its decisions
// with those of the naive rules. These know no nominations, which end for its time.
func (w *clusterState) check(t *testing.T) {
	for _, uid := range slices.Sorted(maps.Keys(w.nominated)) {
		w.snapshot.Nominate(w.nominated[uid], "")
		defer w.nominate(w.nominated[uid])
	}
	fresh := NewSnapshot()
	for _, ns := range w.namespaces {
		fresh.SetNamespace(ns)
	}
	for _, pod := range w.pods {
		fresh.SetPod(pod)
	}
	for _, n := range w.nodes {
		fresh.SetNode(n)
	}
	for i := range 5 {
		line := w.podLine(fmt.Sprint("asks", i))
		pod := parsePod(line)
		w.record("decide " + line)
		for _, score := range scores {
			if got, want := w.snapshot.scoreOf(score.name, pod), fresh.scoreOf(score.name, pod); got != want {
				t.Errorf("score %s: got %s, new snapshot %s", score.name, got, want)
			}
		}
		var fits []string
		for _, n := range w.snapshot.pass(newRequest(pod, DefaultProfile(""))) {
			fits = append(fits, n.name)
		}
		if naive := w.fits(pod); !slices.Equal(fits, naive) {
			t.Errorf("fits: got %v, naively %v", fits, naive)
		}
		d := w.snapshot.Decide(pod, w.IntN)
		if (d.Node == "") != (len(fits) == 0) || d.Node != "" && !slices.Contains(fits, d.Node) {
			t.Errorf("decided on %q of %v", d.Node, fits)
		}
		if got, want := d.Message(), ptr.To(fresh.Decide(pod, nil)).Message(); got != want {
			t.Errorf("message: got %s, new snapshot %s", got, want)
		}
		if d.Node == "" {
			w.checkPreemption(t, fresh, pod)
		}
	}
	// The incremental counts are those of a new snapshot.
	for key, c := range w.snapshot.counts.byKey {
		comparePodCount(t, "count "+key, &c.podCount, &fresh.countOf(c.selection).podCount)
	}
	if got, want := w.snapshot.dump(), fresh.dump(); got != want {
		t.Errorf("got\n%s\nnew snapshot\n%s", got, want)
	}
}

// checkPreemption compares a preemption with that of a new snapshot, and checks that
// the pod fits without the victims, and with none of them but by affinity. The new
// snapshot is afterwards as before.
func (w *clusterState) checkPreemption(t *testing.T, fresh *Snapshot, pod *corev1.Pod) {
	d, freshly := w.snapshot.Decide(pod, nil), fresh.Decide(pod, nil)
	p := w.snapshot.Preempt(pod, &d, nil)
	if want := fresh.Preempt(pod, &freshly, nil); p.Message != want.Message || (p.Node == "") != (want.Node == "") {
		t.Errorf("preemption: got %q %s, new snapshot %q %s", p.Node, p.Message, want.Node, want.Message)
	}
	if p.Node == "" {
		return
	}
	fits := func() bool {
		return slices.ContainsFunc(fresh.pass(newRequest(pod, DefaultProfile(""))), func(n *node) bool { return n.name == p.Node })
	}
	for _, victim := range p.Victims {
		if priorityOf(victim) >= priorityOf(pod) {
			t.Errorf("%s is a victim of a pod with priority %d", victim.Name, priorityOf(pod))
		}
		fresh.RemovePod(victim)
	}
	if !fits() {
		t.Errorf("does not fit %s without the victims", p.Node)
	}
	for _, victim := range p.Victims {
		fresh.SetPod(victim)
		if fits() && !strings.Contains(w.log[len(w.log)-1], " near=") {
			t.Errorf("fits %s with the victim %s", p.Node, victim.Name)
		}
		fresh.RemovePod(victim)
	}
	for _, victim := range p.Victims {
		fresh.SetPod(victim)
	}
}

func comparePodCount(t *testing.T, what string, got, want *podCount) {
	for _, d := range got.domains {
		if !maps.Equal(d.values, want.in(d.key).values) || d.total != want.in(d.key).total {
			t.Errorf("%s by %s: got %v, new snapshot %v", what, d.key, d.values, want.in(d.key))
		}
	}
	if fmt.Sprint(byName(got)) != fmt.Sprint(byName(want)) || got.total != want.total {
		t.Errorf("%s: got %v, new snapshot %v", what, byName(got), byName(want))
	}
}

func byName(t *podCount) map[string]int {
	m := map[string]int{}
	for n, pods := range t.byNode {
		m[n.name] = pods
	}
	return m
}

// dump returns all counts of the snapshot as text.
func (s *Snapshot) dump() string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for name, n := range s.nodes.byName {
		add("node %s object=%t pods=%d requested=%v scored=%d/%d ports=%v zone=%q", name, n.object != nil, len(n.pods), n.requested, n.scoredCPU, n.scoredMemory, n.ports, n.zone)
	}
	var order []string
	for _, n := range s.nodes.list() {
		order = append(order, n.name)
	}
	add("order %v present %v", order, byName(&s.nodes.present))
	for namespace, classes := range s.classes {
		for key, c := range classes {
			add("class %s %s %v", namespace, key, byName(&c.podCount))
		}
	}
	for uid, t := range s.owners {
		add("owner %s %v", uid, byName(&t.podCount))
	}
	for key, h := range s.boundTerms.byKey {
		add("term %s forbids=%t pods=%d %v", key, h.forbids, h.pods, byName(&h.podCount))
	}
	for namespace, list := range s.boundTerms.byNamespace {
		add("terms of %s: %d", namespace, len(list))
	}
	add("terms selecting: %d", len(s.boundTerms.selecting))
	for name, have := range s.images {
		add("image %s %d", name, len(have))
	}
	add("users %v, pods %d, priorities %v", s.storage.users, len(s.pods), s.priorities)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (w *clusterState) one(words ...string) string { return words[w.IntN(len(words))] }

func (w *clusterState) maybe(p float64, words ...string) string {
	if w.Float64() < p {
		return " " + w.one(words...)
	}
	return ""
}

func (w *clusterState) nodeName() string { return string(rune('a' + w.IntN(6))) }

func (w *clusterState) nodeLine(name string) string {
	return name + w.maybe(0.8, "zone=z1", "zone=z2", "zone=z3") +
		w.maybe(0.5, "{rack=r1}", "{rack=r2}", "{rack=r1,disk=ssd}", "{disk=ssd}") +
		w.maybe(0.5, "cpu=2", "cpu=8", "cpu=3 memory=3Gi") +
		w.maybe(0.2, "nohost") + w.maybe(0.15, "cordoned") +
		w.maybe(0.2, "taint=ded=db:NoSchedule", "taint=ded=web:NoExecute", "taint=x=:PreferNoSchedule") +
		w.maybe(0.3, "image=main:latest@500Mi", "image=main:latest@900Mi", "image=other:latest@100Mi") +
		w.maybe(0.2, "example.com/gpu=2", "pods=3") +
		w.maybe(0.6, "declares="+restartsAll, "declares=ExtendWebSocketsToKubelet,"+restartsAll, "declares=ExtendWebSocketsToKubelet")
}

func (w *clusterState) podLine(name string) string {
	line := name + w.maybe(0.6, "ns=n1", "ns=n2")
	switch app := w.app(); w.IntN(4) {
	case 0:
		line += fmt.Sprintf(" {app=%s,rs=%s} owner=ReplicaSet/%s", app, app, app)
	case 1, 2:
		line += fmt.Sprintf(" {app=%s}", app)
	}
	line += w.maybe(0.6, "cpu=100m", "cpu=1 memory=1Gi", "memory=500Mi", "cpu=2 init:cpu=3", "cpu=1 sidecar:cpu=500m init:memory=2Gi", "pod:cpu=1 pod:memory=1Gi", "example.com/gpu=1")
	line += w.maybe(0.15, "host=80", "host=80/UDP", "host=80@10.0.0.1", "host=80@10.0.0.2")
	line += w.maybe(0.15, "select={disk=ssd}", "select={rack=r1}", "affinity={rack=r1} affinity={rack=r2}", "in=a|b", "affinity~10={disk=ssd}")
	line += w.maybe(0.3, "tolerate=ded", "tolerate=ded=db:NoSchedule", "tolerate=*")
	for range 2 {
		if w.Float64() < 0.2 {
			line += " " + w.one("near", "away", "near~10", "away~20") + "=" + w.term()
		}
		if w.Float64() < 0.15 {
			line += fmt.Sprintf(" %s={app=%s}/%s/%d%s%s%s", w.one("spread", "spread~"), w.app(), w.one("host", "zone", "rack"), 1+w.IntN(2),
				w.one("", "/anywhere"), w.one("", "/tolerated"), w.one("", "/by=rs"))
		}
	}
	return line + w.maybe(0.3, "image=main", "image=other") + w.maybe(0.6, "priority=1", "priority=2", "priority=3") + w.maybe(0.05, "restarts-all")
}

// restartsAll is the feature that pods with restarts-all need.
const restartsAll = "RestartAllContainersOnContainerExits"

func (w *clusterState) app() string { return w.one("web", "db", "cache") }

func (w *clusterState) term() string {
	term := fmt.Sprintf("{app=%s}/%s", w.app(), w.one("host", "zone", "rack"))
	return term + w.one("", "", "@n1|n2", "@{team=a}", "@{}")
}
