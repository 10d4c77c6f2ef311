package decision

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/internal/oracle"
)

// question and verdict are what the program of hack/tools/kubernetes/schedule reads and writes.
type question struct {
	Nodes           []*corev1.Node
	Pods, Nominated []*corev1.Pod
	Namespaces      []*corev1.Namespace
	Services        []*corev1.Service
	ReplicaSets     []*appsv1.ReplicaSet
	Budgets         []*policyv1.PodDisruptionBudget
	Claims          []*corev1.PersistentVolumeClaim
	Volumes         []*corev1.PersistentVolume
	Classes         []*storagev1.StorageClass
	CSINodes        []*storagev1.CSINode
	Drivers         []*storagev1.CSIDriver
	Capacities      []*storagev1.CSIStorageCapacity
	Attachments     []*storagev1.VolumeAttachment
	DeviceClasses   []*resourcev1.DeviceClass
	Slices          []*resourcev1.ResourceSlice
	ResourceClaims  []*resourcev1.ResourceClaim
	ScoreDevices    bool
	Pod             *corev1.Pod
}

type verdict struct {
	Scores     map[string]int64
	Plugins    map[string]map[string]int64
	Why        map[string]string
	Nominated  string
	Victims    []string
	Preemption string
	Released   string
	Failed     bool
}

// TestDecidesLikeKubeScheduler compares decisions about -runs random clusters with the
// real kube-scheduler's: the feasible nodes, each score of each, and the preemption. It
// needs the program: `make test-peers-scheduler` builds it.
func TestDecidesLikeKubeScheduler(t *testing.T) {
	o := oracle.Start(t, "hack/tools/kubernetes/schedule")
	failed := 0
	for seed := range uint64(*runs) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { compareCluster(t, o, seed) }) {
			if failed++; failed == 20 {
				t.Fatal("too many differences")
			}
		}
	}
}

// compareCluster compares the decisions about three pods of a random cluster.
func compareCluster(t *testing.T, o *oracle.Oracle, seed uint64) {
	w := &clusterState{Rand: rand.New(rand.NewPCG(seed, 1)), snapshot: NewSnapshot(), nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}, namespaces: map[string]*corev1.Namespace{}}
	q := &question{ScoreDevices: seed%3 == 0}
	w.snapshot.SetProfiles(devicesProfile(q.ScoreDevices))
	w.build(q)
	w.buildDevices(q, seed)
	for i := range 3 {
		line := w.withDevices(w.withVolumes(w.podLine(fmt.Sprint("asks", i)), 0.7))
		q.Pod = complete(parsePod(line))
		w.record("decide " + line)
		v := &verdict{}
		o.Ask(t, q, v)
		w.compareNodes(t, q.Pod, v)
		if len(v.Scores) == 0 && !v.Failed {
			w.comparePreemption(t, q.Pod, v)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(w.log, "\n"))
	}
}

// build makes a random cluster, in the snapshot and in the question.
func (w *clusterState) build(q *question) {
	for _, name := range []string{"default", "n1", "n2"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": w.one("a", "b")}}}
		w.record(fmt.Sprintf("namespace %s %v", name, ns.Labels))
		q.Namespaces = append(q.Namespaces, ns)
		w.snapshot.SetNamespace(ns)
		for _, app := range []string{"web", "db", "cache"} {
			q.ReplicaSets = append(q.ReplicaSets, &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: app, UID: types.UID(app)},
				Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"rs": app}}},
			})
		}
		if w.Float64() < 0.4 {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "s"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": w.app()}}}
			w.record(fmt.Sprintf("service in %s %v", name, service.Spec.Selector))
			q.Services = append(q.Services, service)
			w.snapshot.SetService(service)
		}
		if w.Float64() < 0.5 {
			budget := parseBudget(fmt.Sprintf("b {app=%s} allowed=%d", w.app(), w.IntN(3)))
			budget.Namespace = name
			w.record(fmt.Sprintf("budget in %s %v allowed=%d", name, budget.Spec.Selector.MatchLabels, budget.Status.DisruptionsAllowed))
			q.Budgets = append(q.Budgets, budget)
			w.snapshot.SetBudget(budget)
		}
	}
	for i := range 1 + w.IntN(8) {
		line := w.nodeLine(string(rune('a' + i)))
		w.record("node " + line)
		n := parseNode(line)
		w.nodes[n.Name] = n
		q.Nodes = append(q.Nodes, n)
		w.snapshot.SetNode(n)
	}
	w.buildStorage(q)
	for i := range w.IntN(30) {
		line := w.withVolumes(w.podLine(fmt.Sprint("pod", i)), 0.3) + " on=" + q.Nodes[w.IntN(len(q.Nodes))].Name + w.maybe(0.1, "deleting") + fmt.Sprintf(" started=%d", 1+i*7%31) // the order of equal ones is not defined
		w.record("pod " + line)
		pod := complete(parsePod(line))
		if n := w.snapshot.node(pod.Spec.NodeName); slices.ContainsFunc(hostPorts(pod), n.uses) {
			continue // kube-scheduler does not count the pods with a port
		}
		if slices.ContainsFunc(claimsOf(pod), w.isExclusive) {
			continue // nor those with a claim that only one may have
		}
		q.Pods = append(q.Pods, pod)
		w.snapshot.SetPod(pod)
	}
	for i := range w.IntN(3) {
		// Unlike svc, kube-scheduler ignores the anti-affinity of nominated pods unless a
		// pod that has a node has some, too.
		line := strings.ReplaceAll(w.podLine(fmt.Sprint("nominated", i)), " away=", " near~1=") + " nominated=" + q.Nodes[w.IntN(len(q.Nodes))].Name
		w.record("nominate " + line)
		pod := complete(parsePod(line))
		if len(hostPorts(pod)) > 0 {
			continue
		}
		q.Nominated = append(q.Nominated, pod)
		w.snapshot.Nominate(pod, pod.Status.NominatedNodeName)
	}
}

// complete sets what the API server would have set.
func complete(pod *corev1.Pod) *corev1.Pod {
	if pod.DeletionTimestamp != nil {
		pod.DeletionTimestamp = &metav1.Time{Time: metav1.Unix(1, 0).Time}
	}
	for i := range pod.OwnerReferences {
		owner := &pod.OwnerReferences[i]
		owner.APIVersion, owner.Name, owner.UID = "apps/v1", string(owner.UID), types.UID(pod.Namespace+"/"+string(owner.UID))
	}
	// kube-scheduler 1.36 ignores them in its scores.
	pod.Spec.Resources = nil
	for i := range pod.Spec.Containers {
		for j := range pod.Spec.Containers[i].Ports {
			if p := &pod.Spec.Containers[i].Ports[j]; p.Protocol == "" {
				p.Protocol = corev1.ProtocolTCP
			}
		}
	}
	return pod
}

func (w *clusterState) compareNodes(t *testing.T, pod *corev1.Pod, v *verdict) {
	r := newRequest(pod, w.snapshot.first)
	nodes := w.snapshot.pass(r)
	var names []string
	for _, n := range nodes {
		names = append(names, n.name)
	}
	if theirs := slices.Sorted(maps.Keys(v.Scores)); !slices.Equal(names, theirs) {
		t.Errorf("%s: feasible are %v, of kube-scheduler %v: %v", pod.Name, names, theirs, v.Why)
		return
	}
	if len(nodes) == 0 {
		return
	}
	for _, score := range scores {
		values := make([]int64, len(nodes))
		if !score.apply(w.snapshot, r, nodes, values) {
			clear(values)
		}
		for i, n := range nodes {
			if theirs := v.Plugins[n.name][score.name]; values[i]*score.weight != theirs && len(nodes) > 1 {
				t.Errorf("%s: score %s of node %s is %d, of kube-scheduler %d", pod.Name, score.name, n.name, values[i]*score.weight, theirs)
			}
		}
	}
}

// comparePreemption compares the victims on kube-scheduler's node. It chooses at random
// among nodes that it prefers equally.
func (w *clusterState) comparePreemption(t *testing.T, pod *corev1.Pod, v *verdict) {
	d := w.snapshot.Decide(pod, nil)
	if (d.Release == "") != (v.Released == "") {
		t.Errorf("%s: resource claim %q is released, by kube-scheduler %q: %v", pod.Name, d.Release, v.Released, v.Why)
	}
	p := w.snapshot.Preempt(pod, &d, nil)
	if (p.Node == "") != (v.Nominated == "") {
		t.Errorf("%s: preemption on %q, of kube-scheduler on %q; %s, %s", pod.Name, p.Node, v.Nominated, p.Message, v.Preemption)
		return
	}
	if p.Node == "" {
		return
	}
	r := newRequest(pod, w.snapshot.first)
	trial := trial{Snapshot: w.snapshot, request: r, policy: w.snapshot.prepare(r, nil), global: true}
	ours, _ := trial.candidate(w.snapshot.nodes.get(p.Node))
	theirs, why := trial.candidate(w.snapshot.nodes.get(v.Nominated))
	if len(why) > 0 {
		t.Errorf("%s: preemption on %s: %v, kube-scheduler chose %s without %v", pod.Name, v.Nominated, why, v.Nominated, v.Victims)
		return
	}
	var victims []string
	for _, victim := range theirs.victims {
		victims = append(victims, victim.object.Namespace+"/"+victim.object.Name)
	}
	slices.Sort(victims)
	slices.Sort(v.Victims)
	if alive := slices.DeleteFunc(slices.Clone(theirs.victims), func(p *boundPod) bool { return p.object.DeletionTimestamp != nil }); len(alive) == len(theirs.victims) && !slices.Equal(victims, v.Victims) {
		t.Errorf("%s: victims on %s are %v, of kube-scheduler %v", pod.Name, v.Nominated, victims, v.Victims)
	}
	for _, preference := range preferences {
		if preference.of(&ours) != preference.of(&theirs) {
			t.Errorf("%s: preemption on %s, of kube-scheduler on %s, which differs in: %s", pod.Name, p.Node, v.Nominated, preference.name)
		}
	}
}
