package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// model plays a deployment, its replica sets and the controller of these.
type model struct {
	t         testing.TB
	d         *appsv1.Deployment
	sets      []*appsv1.ReplicaSet
	available map[types.UID]int32 // pods, which the status may not tell yet
	ending    map[types.UID]int   // old pods that are being deleted, for Recreate
	now       time.Time
	made      int
}

func newModel(t testing.TB) *model {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web", Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas:                ptr.To[int32](1),
			Selector:                &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			RevisionHistoryLimit:    ptr.To[int32](10),
			ProgressDeadlineSeconds: ptr.To[int32](600),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: ptr.To(intstr.FromString("25%")), MaxUnavailable: ptr.To(intstr.FromString("25%")),
			}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "1"}}},
			},
		},
	}
	return &model{t: t, d: d, available: map[types.UID]int32{}, ending: map[types.UID]int{}, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
}

// edit changes the deployment's spec as key=value says.
func (m *model) edit(key, value string) {
	spec, n := &m.d.Spec, func() *int32 {
		v, err := strconv.Atoi(value)
		if err != nil {
			m.t.Fatalf("%s=%s: %v", key, value, err)
		}
		return ptr.To(int32(v))
	}
	switch key {
	case "image":
		spec.Template.Spec.Containers[0].Image = value
	case "replicas":
		spec.Replicas = n()
	case "maxSurge":
		spec.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.Parse(value))
	case "maxUnavailable":
		spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.Parse(value))
	case "strategy":
		spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.DeploymentStrategyType(value)}
	case "paused":
		spec.Paused = value == "true"
	case "progressDeadlineSeconds":
		spec.ProgressDeadlineSeconds = n()
		if value == "0" {
			spec.ProgressDeadlineSeconds = nil
		}
	case "revisionHistoryLimit":
		spec.RevisionHistoryLimit = n()
	case "minReadySeconds":
		spec.MinReadySeconds = *n()
	case "annotation":
		name, text, _ := strings.Cut(value, ":")
		m.d.Annotations = with(m.d.Annotations, name, text)
	case "deleted":
		m.d.DeletionTimestamp = ptr.To(metav1.NewTime(m.now))
	default:
		m.t.Fatalf("unknown field %s", key)
	}
	m.d.Generation++
}

// decide decides, and checks that nothing that was decided on has changed.
func (m *model) decide() Plan {
	state := State{Deployment: m.d, Sets: m.sets, Running: m.ending, Now: m.now}
	d, sets := m.d.DeepCopy(), make([]*appsv1.ReplicaSet, len(m.sets))
	for i, set := range m.sets {
		sets[i] = set.DeepCopy()
	}
	plan := Decide(state)
	if !apiequality.Semantic.DeepEqual(d, m.d) || !apiequality.Semantic.DeepEqual(sets, m.sets) {
		m.t.Fatal("the decision has changed the state")
	}
	return plan
}

// apply does what a plan says.
func (m *model) apply(plan Plan) {
	for _, action := range plan.Actions {
		switch action.Verb {
		case Create:
			set := action.Set.DeepCopy()
			m.made++
			set.UID, set.Generation = types.UID(fmt.Sprint("uid-", m.made)), 1
			set.CreationTimestamp = metav1.NewTime(m.now.Add(time.Duration(m.made) * time.Second))
			m.sets = append(m.sets, set)
		case Change:
			set := action.Set.DeepCopy()
			if size(set) != size(action.Was) {
				set.Generation++
			}
			m.sets[slices.Index(m.sets, action.Was)] = set
		case Delete:
			m.sets = slices.Delete(m.sets, slices.Index(m.sets, action.Was), slices.Index(m.sets, action.Was)+1)
		}
	}
	if plan.Revision != "" {
		m.d.Annotations = with(m.d.Annotations, Revision, plan.Revision)
	}
	m.d.Status = plan.Status
}

// settle lets the controller of replica sets do its work for one of them.
func (m *model) settle(set *appsv1.ReplicaSet) {
	m.available[set.UID] = min(m.available[set.UID], size(set))
	set.Status = appsv1.ReplicaSetStatus{
		Replicas: size(set), ReadyReplicas: m.available[set.UID], AvailableReplicas: m.available[set.UID],
		ObservedGeneration: set.Generation, TerminatingReplicas: ptr.To(int32(m.ending[set.UID])),
		Conditions: set.Status.Conditions,
	}
}

// settleAll lets it do all its work, and all pods be available if ready says so.
func (m *model) settleAll(ready bool) {
	for _, set := range m.sets {
		if ready {
			m.available[set.UID] = size(set)
		}
		m.settle(set)
	}
}

// set finds a replica set by its image.
func (m *model) set(name string) *appsv1.ReplicaSet {
	for _, set := range m.sets {
		if alias(set) == name {
			return set
		}
	}
	m.t.Fatalf("no replica set %s", name)
	return nil
}

// alias names a replica set by its image instead of its hash.
func alias(set *appsv1.ReplicaSet) string { return "web-" + set.Spec.Template.Spec.Containers[0].Image }

// aliased replaces the names of replica sets in a text.
func (m *model) aliased(text string, more []Action) string {
	sets := slices.Clone(m.sets)
	for _, action := range more {
		sets = append(sets, action.Set)
	}
	for _, set := range sets {
		text = strings.ReplaceAll(text, set.Name, alias(set))
	}
	return text
}

// describe prints a plan: the events, the other changes, and of the status what
// is new in it.
func (m *model) describe(plan Plan) string {
	var out strings.Builder
	for _, action := range plan.Actions {
		for _, event := range action.Events {
			fmt.Fprintln(&out, event)
		}
		if action.Verb == Delete {
			fmt.Fprintln(&out, "Delete", action.Set.Name)
			continue
		}
		if changes := changes(action); changes != "" {
			fmt.Fprintln(&out, action.Set.Name+":"+changes)
		}
	}
	before, s := &m.d.Status, &plan.Status
	if plan.Revision != m.d.Annotations[Revision] {
		fmt.Fprintln(&out, "revision", plan.Revision)
	}
	counts := func(s *appsv1.DeploymentStatus) string {
		return fmt.Sprintf("%d replicas, %d updated, %d ready, %d available, %d unavailable", s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.UnavailableReplicas)
	}
	if counts(before) != counts(s) {
		fmt.Fprintln(&out, counts(s))
	}
	for _, c := range s.Conditions {
		if was := condition(before, c.Type); was == nil || *was != c {
			fmt.Fprintf(&out, "%s %s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, c := range before.Conditions {
		if condition(s, c.Type) == nil {
			fmt.Fprintln(&out, "no condition", c.Type)
		}
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return m.aliased(out.String(), plan.Actions)
}

// changes prints what changes besides the size.
func changes(action Action) string {
	var was map[string]string
	text := ""
	if action.Was != nil {
		was = action.Was.Annotations
		if action.Was.Spec.MinReadySeconds != action.Set.Spec.MinReadySeconds {
			text += fmt.Sprint(" minReadySeconds=", action.Set.Spec.MinReadySeconds)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(action.Set.Annotations)) {
		isSize := key == DesiredReplicas || key == MaxReplicas
		if value := action.Set.Annotations[key]; value != was[key] && !(isSize && len(action.Events) > 0) {
			text += fmt.Sprintf(" %s=%s", strings.TrimPrefix(key, "deployment.kubernetes.io/"), value)
		}
	}
	return text
}
