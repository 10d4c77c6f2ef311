package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/internal/golden"
)

// TestScripts plays the scripts of testdata. The commands:
//
//	edit field=value ...   changes the deployment
//	decide                 makes a plan and does it
//	pods name available=n  lets the replica sets' controller do its work, and n of the set's pods be available
//	pods                   lets it do its work
//	ready                  lets it do its work, and all pods be available
//	rollout                repeats decide and ready until nothing changes
//	wait duration          lets time pass
//	sets                   prints the replica sets
//	adopt image=i size=n   adds a replica set that the deployment has adopted
//	resize name n          another client scales a replica set
//	ending name n          lets n pods of the replica set still end
//	fail name message      lets the replica set fail to get its pods
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		m := newModel(t)
		return func(c golden.Command) string { return m.run(c.Name, c.Args) }
	})
}

// run does one command and returns what it prints.
func (m *model) run(command string, args []string) string {
	switch command {
	case "edit":
		for _, word := range args {
			key, value, _ := strings.Cut(word, "=")
			m.edit(key, value)
		}
	case "decide":
		return m.step()
	case "rollout":
		return m.rollOut()
	case "ready":
		m.settleAll(true)
	case "pods":
		if len(args) > 0 {
			m.available[m.set(args[0]).UID] = m.number(args[1])
		}
		m.settleAll(false)
	case "wait":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			m.t.Fatal(err)
		}
		m.now = m.now.Add(d)
	case "sets":
		return m.describeSets()
	case "adopt":
		set := newSet(&appsv1.Deployment{ObjectMeta: m.d.ObjectMeta, Spec: *m.d.Spec.DeepCopy()})
		set.Spec.Template.Spec.Containers[0].Image = strings.TrimPrefix(args[0], "image=")
		set.Name, set.UID = "web-adopted", types.UID("adopted")
		set.Spec.Replicas = ptr.To(m.number(args[1]))
		set.CreationTimestamp = metav1.NewTime(m.now.Add(-time.Hour))
		m.sets = append(m.sets, set)
	case "resize":
		m.set(args[0]).Spec.Replicas = ptr.To(m.number(args[1]))
		m.set(args[0]).Generation++
	case "ending":
		m.ending[m.set(args[0]).UID] = int(m.number(args[1]))
	case "fail":
		m.set(args[0]).Status.Conditions = []appsv1.ReplicaSetCondition{{
			Type: appsv1.ReplicaSetReplicaFailure, Status: "True", Reason: "FailedCreate", Message: strings.Join(args[1:], " "),
		}}
	default:
		m.t.Fatalf("Unknown command %q", command)
	}
	return ""
}

func (m *model) number(word string) int32 {
	var n int32
	if _, err := fmt.Sscan(word[strings.Index(word, "=")+1:], &n); err != nil {
		m.t.Fatalf("%s: %v", word, err)
	}
	return n
}

func (m *model) step() string {
	plan := m.decide()
	text := m.describe(plan)
	if plan.After > 0 {
		text += fmt.Sprintf("again in %s\n", plan.After)
	}
	m.apply(plan)
	return text
}

// rollOut prints each step's events and the sizes and available pods after it.
func (m *model) rollOut() string {
	var out strings.Builder
	for range 100 {
		plan := m.decide()
		idle := m.idle(plan)
		for _, action := range plan.Actions {
			for _, event := range action.Events {
				out.WriteString(m.aliased(event, plan.Actions) + "\n")
			}
			if action.Verb == Delete {
				out.WriteString(m.aliased("Delete "+action.Set.Name, nil) + "\n")
			}
		}
		m.apply(plan)
		if idle {
			c := condition(&m.d.Status, appsv1.DeploymentProgressing)
			return out.String() + m.aliased(fmt.Sprintf("%s %s: %s\n", c.Status, c.Reason, c.Message), nil)
		}
		m.settleAll(true)
	}
	m.t.Fatal("the rollout does not end")
	return ""
}

// idle reports whether the plan changes nothing.
func (m *model) idle(plan Plan) bool {
	return len(plan.Actions) == 0 && plan.Revision == m.d.Annotations[Revision] && apiequality.Semantic.DeepEqual(plan.Status, m.d.Status)
}

func (m *model) describeSets() string {
	text := ""
	for _, set := range m.sets {
		text += fmt.Sprintf("%s: %d of %d available, revision %s", alias(set), available(set), size(set), set.Annotations[Revision])
		if history := set.Annotations[RevisionHistory]; history != "" {
			text += " after " + history
		}
		text += fmt.Sprintf(", sized for %s to %s\n", set.Annotations[DesiredReplicas], set.Annotations[MaxReplicas])
	}
	return text
}
