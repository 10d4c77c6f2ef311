package decide

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"svc.dev/svc/internal/golden"
)

// TestScripts plays the scripts of testdata. The commands:
//
//	set field=value ...        changes the set
//	node name [field=value]    adds or changes nodes: label=key:value, taint=key:effect
//	remove node ...            removes nodes
//	sync                       makes a plan, prints it and does it
//	bind, ready, fail pod ...  lets pods be bound, be ready, or fail; without names, all
//	succeed, unready pod ...   lets pods succeed, or be not ready
//	delete pod ...             lets a client delete pods
//	gone [pod ...]             lets pods that are being deleted end; without names, all
//	pod name node hash         adds a pod
//	wait duration              lets time pass
//	rollout                    repeats sync, gone and ready until nothing changes
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		m := newModel(t)
		return func(c golden.Command) string { return m.run(c.Name, c.Args) }
	})
}

// model is a set with its pods, and nodes.
type model struct {
	t       *testing.T
	set     *appsv1.DaemonSet
	pods    []*corev1.Pod
	nodes   []*corev1.Node
	hash    string
	now     time.Time
	created map[string]int
}

func newModel(t *testing.T) *model {
	return &model{t: t, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), hash: "1", created: map[string]int{}, set: &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "log", UID: "log"},
		Spec: appsv1.DaemonSetSpec{
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{
				MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0)),
			}},
		},
	}}
}

func (m *model) run(command string, args []string) string {
	switch command {
	case "set":
		for _, word := range args {
			key, value, _ := strings.Cut(word, "=")
			m.edit(key, value)
		}
	case "node":
		m.changeNode(args[0], args[1:])
	case "remove":
		m.nodes = slices.DeleteFunc(m.nodes, func(n *corev1.Node) bool { return slices.Contains(args, n.Name) })
	case "sync":
		text, _ := m.sync()
		return text
	case "rollout":
		return m.rollOut()
	case "gone":
		m.pods = slices.DeleteFunc(m.pods, func(pod *corev1.Pod) bool {
			return pod.DeletionTimestamp != nil && (len(args) == 0 || slices.Contains(args, pod.Name))
		})
	case "pod":
		pod := onNode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: args[0], Labels: map[string]string{HashLabel: args[2]}}}, args[1])
		pod.CreationTimestamp = metav1.NewTime(m.now)
		m.pods = append(m.pods, pod)
		m.start(pod, "ready")
	case "wait":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			m.t.Fatal(err)
		}
		m.now = m.now.Add(d)
	default:
		for _, pod := range m.pods {
			if len(args) == 0 && pod.DeletionTimestamp == nil || slices.Contains(args, pod.Name) {
				m.start(pod, command)
			}
		}
	}
	return ""
}

func (m *model) edit(key, value string) {
	spec := &m.set.Spec
	pod := &spec.Template.Spec
	switch key {
	case "revision":
		m.hash = value
	case "strategy":
		spec.UpdateStrategy.Type = appsv1.DaemonSetUpdateStrategyType(value)
	case "maxUnavailable":
		spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.Parse(value))
	case "maxSurge":
		spec.UpdateStrategy.RollingUpdate.MaxSurge = ptr.To(intstr.Parse(value))
	case "minReadySeconds":
		d, err := time.ParseDuration(value)
		if err != nil {
			m.t.Fatal(err)
		}
		spec.MinReadySeconds = int32(d.Seconds())
	case "selector":
		name, label, _ := strings.Cut(value, ":")
		pod.NodeSelector = map[string]string{name: label}
	case "affinity":
		name, label, _ := strings.Cut(value, ":")
		pod.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: name, Operator: corev1.NodeSelectorOpIn, Values: []string{label}}}}},
		}}}
	case "nodeName":
		pod.NodeName = value
	case "tolerates":
		pod.Tolerations = []corev1.Toleration{{Key: value, Operator: corev1.TolerationOpExists}}
	default:
		m.t.Fatalf("Unknown field %q", key)
	}
}

func (m *model) changeNode(name string, fields []string) {
	i := slices.IndexFunc(m.nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		m.nodes = append(m.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		i = len(m.nodes) - 1
	}
	node := m.nodes[i]
	node.Labels, node.Spec.Taints = map[string]string{}, nil
	for _, field := range fields {
		kind, value, _ := strings.Cut(field, "=")
		key, value, _ := strings.Cut(value, ":")
		switch kind {
		case "label":
			node.Labels[key] = value
		case "taint":
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(value)})
		default:
			m.t.Fatalf("Unknown field %q", kind)
		}
	}
}

func (m *model) start(pod *corev1.Pod, how string) {
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(m.now)}
	pod.Spec.NodeName = NodeOf(pod)
	switch how {
	case "bind":
		return
	case "delete":
		pod.DeletionTimestamp = ptr.To(metav1.NewTime(m.now))
		return
	case "fail":
		pod.Status.Phase = corev1.PodFailed
	case "succeed":
		pod.Status.Phase = corev1.PodSucceeded
	case "unready":
		pod.Status.Phase = corev1.PodRunning
	case "ready":
		pod.Status.Phase = corev1.PodRunning
		if len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Status == corev1.ConditionTrue {
			return
		}
		condition.Status = corev1.ConditionTrue
	default:
		m.t.Fatalf("Unknown command %q", how)
	}
	pod.Status.Conditions = []corev1.PodCondition{condition}
}

// sync makes and does a plan, and returns its text and whether it does nothing.
func (m *model) sync() (text string, idle bool) {
	plan := Decide(State{Set: m.set, Kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), Pods: m.pods, Nodes: m.nodes, Hash: m.hash, Now: m.now})
	var out strings.Builder
	for _, pod := range plan.Create {
		node := NodeOf(pod)
		m.created[node]++
		pod.Name = fmt.Sprintf("%s-%d", node, m.created[node])
		pod.Status.Phase, pod.CreationTimestamp = corev1.PodPending, metav1.NewTime(m.now.Add(time.Duration(len(m.pods))))
		fmt.Fprintf(&out, "create %s in %s\n", pod.Name, pod.Labels[HashLabel])
		m.pods = append(m.pods, pod)
	}
	for _, group := range []struct {
		verb string
		pods []*corev1.Pod
	}{{"delete", plan.Delete}, {"failed", plan.Failed}, {"succeeded", plan.Succeeded}} {
		for _, pod := range group.pods {
			fmt.Fprintf(&out, "%s %s\n", group.verb, pod.Name)
			pod.DeletionTimestamp = ptr.To(metav1.NewTime(m.now))
		}
	}
	s := plan.Status
	fmt.Fprintf(&out, "%d desired, %d current, %d updated, %d ready, %d available, %d unavailable, %d misscheduled\n",
		s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.UpdatedNumberScheduled, s.NumberReady, s.NumberAvailable, s.NumberUnavailable, s.NumberMisscheduled)
	if plan.After > 0 {
		fmt.Fprintf(&out, "again in %s\n", plan.After)
	}
	return out.String(), len(plan.Create)+len(plan.Delete)+len(plan.Failed)+len(plan.Succeeded) == 0
}

// rollOut prints what each sync does, and the status at the end.
func (m *model) rollOut() string {
	var out strings.Builder
	for range 100 {
		text, idle := m.sync()
		if idle {
			return out.String() + text
		}
		lines := strings.SplitAfter(text, "\n")
		out.WriteString(strings.Join(lines[:len(lines)-2], "") + "then\n")
		m.run("gone", nil)
		m.run("ready", nil)
	}
	m.t.Fatal("the rollout does not end")
	return ""
}

func TestAPodToleratesTheTaintsOfNodesInTrouble(t *testing.T) {
	m := newModel(t)
	m.set.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "3"}
	m.set.Spec.Template.Spec.Tolerations = []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
	}
	describe := func() string {
		var words []string
		pod := NewPod(m.set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"), "1")
		for _, toleration := range pod.Spec.Tolerations {
			words = append(words, fmt.Sprintf("%s:%s", strings.TrimPrefix(toleration.Key, "node.kubernetes.io/"), toleration.Effect))
			if toleration.TolerationSeconds != nil {
				t.Errorf("%s is tolerated for %d s", toleration.Key, *toleration.TolerationSeconds)
			}
		}
		return fmt.Sprint(words, pod.Labels)
	}
	const always = "not-ready:NoExecute unreachable:NoExecute disk-pressure:NoSchedule memory-pressure:NoSchedule pid-pressure:NoSchedule unschedulable:NoSchedule"
	const labels = " map[controller-revision-hash:1 pod-template-generation:3]"
	if got, want := describe(), "["+always+"]"+labels; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	m.set.Spec.Template.Spec.HostNetwork = true
	if got, want := describe(), "["+always+" network-unavailable:NoSchedule]"+labels; got != want {
		t.Errorf("on the host's network: %s, want %s", got, want)
	}
}

func TestARolloutReplacesTheShareOfAThousandNodes(t *testing.T) {
	m := newModel(t)
	for i := range 1000 {
		m.changeNode(fmt.Sprintf("node-%04d", i), nil)
	}
	if text := m.rollOut(); !strings.HasSuffix(text, "1000 desired, 1000 current, 1000 updated, 1000 ready, 1000 available, 0 unavailable, 0 misscheduled\n") {
		t.Error(text[len(text)-200:])
	}
	m.edit("revision", "2")
	m.edit("maxUnavailable", "10%")
	text, _ := m.sync()
	if got := strings.Count(text, "delete "); got != 100 {
		t.Errorf("a rollout with maxUnavailable 10%% deletes %d pods, want 100", got)
	}
}
