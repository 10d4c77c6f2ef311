package decide

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"svc.dev/svc/internal/golden"
	"svc.dev/svc/internal/releases"
)

// TestScripts plays the scripts of testdata. The commands:
//
//	set field=value ...     changes the set
//	sync                    makes a plan, prints it and does it
//	ready pod ...           lets pods run and be ready; without names, all pods
//	delete pod              lets a client delete a pod
//	unready, fail pod ...   lets pods run and not be ready, or fail
//	gone [pod ...]          lets pods that are being deleted end; without names, all
//	orphan pod revision     adds a ready pod that lacks its labels
//	delay pod duration      delays the deletion of a pod that has terminated
//	delete-claim name       lets a client delete a claim, which a finalizer keeps
//	collect                 lets the garbage collector delete claims whose pod has gone
//	wait duration           lets time pass
//	rollout                 repeats sync, gone and ready until nothing changes
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		m := newModel(t)
		return func(c golden.Command) string { return m.run(c.Name, c.Args) }
	})
}

// model is a set with its pods and claims.
type model struct {
	t      *testing.T
	set    *appsv1.StatefulSet
	pods   []*corev1.Pod
	claims map[string]*corev1.PersistentVolumeClaim
	delays map[types.UID]time.Duration
	now    time.Time
	uid    int
	// release is that of the API server.
	release releases.Release
}

func newModel(t *testing.T) *model {
	return &model{t: t, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), claims: map[string]*corev1.PersistentVolumeClaim{}, set: &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "db", UID: "db", Generation: 1},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](3), ServiceName: "peers", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}}, Spec: corev1.PodSpec{Hostname: "1"}},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{},
			},
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
		m.set.Generation++
	case "sync":
		text, _ := m.sync()
		return text
	case "rollout":
		return m.rollOut()
	case "ready", "unready", "fail":
		m.each(args, func(pod *corev1.Pod) { m.start(pod, command) })
	case "gone":
		m.pods = slices.DeleteFunc(m.pods, func(pod *corev1.Pod) bool {
			return pod.DeletionTimestamp != nil && (len(args) == 0 || slices.Contains(args, pod.Name))
		})
	case "delete":
		m.each(args, func(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.NewTime(m.now)) })
	case "orphan":
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: args[0], UID: types.UID(args[0]), Labels: map[string]string{revisionLabel: args[1]}}}
		m.start(pod, "ready")
		m.pods = append(m.pods, pod)
	case "delay":
		d, err := time.ParseDuration(args[1])
		if err != nil {
			m.t.Fatal(err)
		}
		m.each(args[:1], func(pod *corev1.Pod) { m.delays = map[types.UID]time.Duration{pod.UID: d} })
	case "delete-claim":
		m.claims[args[0]].DeletionTimestamp = ptr.To(metav1.NewTime(m.now))
	case "collect":
		for name, claim := range m.claims {
			for _, owner := range claim.OwnerReferences {
				if owner.Kind == "Pod" && !slices.ContainsFunc(m.pods, func(pod *corev1.Pod) bool { return pod.UID == owner.UID }) {
					delete(m.claims, name)
				}
			}
		}
	case "wait":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			m.t.Fatal(err)
		}
		m.now = m.now.Add(d)
	default:
		m.t.Fatalf("Unknown command %q", command)
	}
	return ""
}

func (m *model) edit(key, value string) {
	spec := &m.set.Spec
	number := func() int32 {
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			m.t.Fatal(err)
		}
		return int32(n)
	}
	switch key {
	case "replicas":
		spec.Replicas = ptr.To(number())
	case "start":
		spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: number()}
	case "revision": // the template differs by its host name
		spec.Template.Spec.Hostname = value
	case "policy":
		spec.PodManagementPolicy = appsv1.PodManagementPolicyType(value)
	case "strategy":
		spec.UpdateStrategy.Type = appsv1.StatefulSetUpdateStrategyType(value)
	case "parameters":
		if value == "none" {
			spec.UpdateStrategy.RollingUpdate = nil
		}
	case "partition":
		spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(number())
	case "maxUnavailable":
		spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.Parse(value))
	case "minReadySeconds":
		spec.MinReadySeconds = number()
	case "claims":
		spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: value}}}
	case "retention":
		deleted, scaled, _ := strings.Cut(value, "/")
		spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.PersistentVolumeClaimRetentionPolicyType(deleted), WhenScaled: appsv1.PersistentVolumeClaimRetentionPolicyType(scaled),
		}
	case "release": // of the API server
		m.release = releases.Release(number())
	case "deleted":
		m.set.DeletionTimestamp = ptr.To(metav1.NewTime(m.now))
	default:
		m.t.Fatalf("Unknown field %q", key)
	}
}

func (m *model) each(names []string, do func(*corev1.Pod)) {
	for _, pod := range m.pods {
		if len(names) == 0 && pod.DeletionTimestamp == nil || slices.Contains(names, pod.Name) {
			do(pod)
		}
	}
}

func (m *model) start(pod *corev1.Pod, how string) {
	pod.Status.Phase = corev1.PodRunning
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(m.now)}
	switch how {
	case "fail":
		pod.Status.Phase = corev1.PodFailed
	case "ready":
		if len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Status == corev1.ConditionTrue {
			return
		}
		condition.Status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{condition}
}

// sync makes and does a plan, and returns its text and whether it does nothing.
func (m *model) sync() (text string, idle bool) {
	s := State{
		Set: m.set, Pods: m.pods, Delays: m.delays, Claims: m.claims, Now: m.now, Release: m.release, Kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), PodKind: corev1.SchemeGroupVersion.WithKind("Pod"),
		Update: Revision{Name: m.set.Spec.Template.Spec.Hostname, Template: &m.set.Spec.Template},
	}
	s.Current = s.Update
	if name := m.set.Status.CurrentRevision; name != "" {
		template := m.set.Spec.Template.DeepCopy()
		template.Spec.Hostname = name
		s.Current = Revision{Name: name, Template: template}
	}
	plan := Decide(s)
	var out strings.Builder
	for _, action := range plan.Actions {
		m.do(&out, action)
	}
	st := plan.Status
	fmt.Fprintf(&out, "%d replicas, %d ready, %d available; current %s: %d, update %s: %d\n",
		st.Replicas, st.ReadyReplicas, st.AvailableReplicas, st.CurrentRevision, st.CurrentReplicas, st.UpdateRevision, st.UpdatedReplicas)
	if plan.After > 0 {
		fmt.Fprintf(&out, "again in %s\n", plan.After)
	}
	m.set.Status = st
	return out.String(), len(plan.Actions) == 0
}

func (m *model) do(out *strings.Builder, action Action) {
	if action.Event.Reason != "" {
		fmt.Fprintf(out, "event %s %s: %s\n", action.Event.Type, action.Event.Reason, action.Event.Message)
	}
	if action.Verb == Report {
		return
	}
	fmt.Fprintf(out, "%s %s", action.Verb, action.Pod.Name)
	if action.Verb == Create {
		fmt.Fprintf(out, " in %s", action.Pod.Labels[revisionLabel])
	}
	for _, claim := range action.Claims {
		fmt.Fprintf(out, ", claim %s%s", claim.Name, ownersText(claim.OwnerReferences))
		m.claims[claim.Name] = claim
	}
	for _, owners := range action.Owners {
		fmt.Fprintf(out, ", owners of %s%s", owners.Claim.Name, ownersText(owners.References))
		owners.Claim.OwnerReferences = owners.References
	}
	if len(action.Labels) > 0 {
		fmt.Fprintf(out, ", labels %s %s", action.Labels[appsv1.StatefulSetPodNameLabel], action.Labels[appsv1.PodIndexLabel])
	}
	out.WriteString("\n")
	switch action.Verb {
	case Create:
		m.uid++
		pod := action.Pod.DeepCopy()
		pod.UID = types.UID(fmt.Sprintf("%s/%d", pod.Name, m.uid))
		pod.Status.Phase = corev1.PodPending
		m.pods = append(m.pods, pod)
	case Delete:
		action.Pod.DeletionTimestamp = ptr.To(metav1.NewTime(m.now))
	case Repair:
		for key, value := range action.Labels {
			action.Pod.Labels[key] = value
		}
	}
}

func ownersText(references []metav1.OwnerReference) string {
	text := ""
	for _, r := range references {
		text += " " + r.Kind + ":" + string(r.UID)
	}
	return " [" + strings.TrimSpace(text) + "]"
}

// rollOut prints each sync that does something, and the last one.
func (m *model) rollOut() string {
	var out strings.Builder
	for range 100 {
		text, idle := m.sync()
		if idle {
			return out.String() + text
		}
		lines := strings.SplitAfter(text, "\n")
		out.WriteString(strings.Join(lines[:len(lines)-2], ""))
		m.run("gone", nil)
		m.run("ready", nil)
	}
	m.t.Fatal("the rollout does not end")
	return ""
}

func TestAPodHasItsIdentityAndItsClaims(t *testing.T) {
	m := newModel(t)
	m.edit("claims", "data")
	m.edit("start", "5")
	m.set.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "other"}}
	s := State{Set: m.set, Update: Revision{Name: "db-1", Template: &m.set.Spec.Template}, Kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet")}
	pod := Decide(s).Actions[0].Pod
	labels := fmt.Sprint(pod.Labels)
	if want := "map[app:db apps.kubernetes.io/pod-index:5 controller-revision-hash:db-1 statefulset.kubernetes.io/pod-name:db-5]"; labels != want {
		t.Errorf("labels %s, want %s", labels, want)
	}
	if pod.Name != "db-5" || pod.GenerateName != "db-" || pod.Spec.Hostname != "db-5" || pod.Spec.Subdomain != "peers" {
		t.Errorf("name %q, generated from %q, host name %q, subdomain %q", pod.Name, pod.GenerateName, pod.Spec.Hostname, pod.Spec.Subdomain)
	}
	if v := pod.Spec.Volumes; len(v) != 2 || v[0].Name != "other" || v[1].PersistentVolumeClaim.ClaimName != "data-db-5" {
		t.Errorf("volumes %v", v)
	}
	// Clients see 0, as of kube-controller-manager, not that there is no such count.
	if c := Decide(s).Status.CollisionCount; c == nil || *c != 0 {
		t.Errorf("collisionCount %v, want 0", c)
	}
	claim := Decide(s).Actions[0].Claims[0]
	if claim.Name != "data-db-5" || claim.Labels["app"] != "db" {
		t.Errorf("claim %s, labels %v", claim.Name, claim.Labels)
	}
}

func TestOrdinalOfAName(t *testing.T) {
	set := newModel(t).set
	for name, want := range map[string]int{"db-0": 0, "db-12": 12, "db": -1, "db-": -1, "db-x": -1, "db-01": -1, "db-+1": -1, "web-1": -1, "db-99999999999": -1} {
		got, ok := Ordinal(set, name)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
