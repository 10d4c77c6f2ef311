package gang

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/internal/golden"
)

// TestScripts runs the scripts of testdata. The commands:
//
//	group NAME [min=N] [priority=N]   adds or changes a PodGroup: a gang with min, else of policy basic
//	remove-group NAME
//	pod NAME GROUP [node=N] [gated] [priority=N] [scheduler=S] [never]   adds or changes a pod
//	remove NAME
//	validate GROUP                    prints what is wrong with the pods
//	infeasible MIN SCHEDULED REMAINING
//
// A change prints the pods without a node whose state changes, and the state.
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		s := &script{t, New(), map[string]*corev1.Pod{}}
		return func(c golden.Command) string { return s.perform(c.Name, c.Args) }
	})
}

type script struct {
	t      *testing.T
	groups *Groups
	pods   map[string]*corev1.Pod
}

func (s *script) perform(command string, args []string) string {
	switch command {
	case "group":
		return s.changed(s.groups.SetObject(s.group(args)))
	case "remove-group":
		return s.changed(s.groups.RemoveObject(s.group(args)))
	case "pod":
		pod := s.pod(args)
		s.pods[pod.Name] = pod
		return s.changed(s.groups.SetPod(pod))
	case "remove":
		return s.changed(s.groups.RemovePod(s.pods[args[0]]))
	case "validate":
		g := s.groups.Get(s.group(args))
		if err := g.Validate(g.All()...); err != nil {
			return err.Error()
		}
		return "valid"
	case "infeasible":
		return Infeasible(s.number(args[0]), s.number(args[1]), s.number(args[2]))
	}
	s.t.Fatalf("unknown command %q", command)
	return ""
}

func (s *script) changed(pods []*corev1.Pod) string {
	var lines []string
	for _, pod := range pods {
		state := "free"
		if s.groups.Held(pod) {
			state = "held"
		}
		lines = append(lines, pod.Name+": "+state)
	}
	return strings.Join(lines, "\n")
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) group(args []string) *schedulingv1beta1.PodGroup {
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: args[0]}}
	group.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	for _, arg := range args[1:] {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "min":
			group.Spec.SchedulingPolicy = schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(s.number(value))}}
		case "priority":
			group.Spec.Priority = ptr.To(int32(s.number(value)))
		default:
			s.t.Fatalf("unknown property %q", arg)
		}
	}
	return group
}

func (s *script) pod(args []string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: args[0], UID: types.UID(args[0])}}
	pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &args[1]}
	pod.Spec.SchedulerName = "default-scheduler"
	for _, arg := range args[2:] {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "node":
			pod.Spec.NodeName = value
		case "gated":
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "gate"}}
		case "priority":
			pod.Spec.Priority = ptr.To(int32(s.number(value)))
		case "scheduler":
			pod.Spec.SchedulerName = value
		case "never":
			pod.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever)
		default:
			s.t.Fatalf("unknown property %q", arg)
		}
	}
	return pod
}

func TestPodsWithoutANodeAreSortedByAge(t *testing.T) {
	groups, name := New(), "g"
	for i, pod := range []string{"c", "a", "b"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod, UID: types.UID(pod), CreationTimestamp: metav1.Unix(int64(i/2), 0)}}
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
		groups.SetPod(p)
	}
	groups.SetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "d", UID: "d"}, Spec: corev1.PodSpec{NodeName: "n", SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: &name}}})
	var got []string
	for _, pod := range groups.groups[types.NamespacedName{Name: name}].Pending() {
		got = append(got, pod.Name)
	}
	if want := []string{"a", "c", "b"}; !slices.Equal(got, want) {
		t.Error(fmt.Sprint(got), "want", want)
	}
}

func TestGroupsWithoutObjectAndPodsAreForgotten(t *testing.T) {
	s := &script{t, New(), map[string]*corev1.Pod{}}
	for _, command := range [][]string{{"pod", "a", "g"}, {"group", "g", "min=1"}, {"remove", "a"}, {"remove-group", "g"}, {"pod", "a", "g"}, {"remove", "a"}} {
		s.perform(command[0], command[1:])
	}
	if len(s.groups.groups) != 0 {
		t.Errorf("%d groups are left", len(s.groups.groups))
	}
}
