package rollout

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// TestScripts runs testdata. A script is a list of blocks: comments, commands,
// ---- and what they print.
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
//	resize name n          is somebody who scales a replica set
//	ending name n          lets n pods of the replica set still end
//	fail name message      lets the replica set fail to get its pods
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(strings.TrimSuffix(name, ".txt"), func(t *testing.T) {
			golden.Assert(t, play(t, string(golden.Get(t, name))), name)
		})
	}
}

// play returns the script with what it prints.
func play(t *testing.T, script string) string {
	t.Helper()
	m := newModel(t)
	var blocks []string
	for _, block := range strings.Split(strings.TrimSpace(script), "\n\n") {
		input, _, _ := strings.Cut(block, "\n----")
		var out strings.Builder
		for _, line := range strings.Split(input, "\n") {
			if !strings.HasPrefix(line, "#") {
				out.WriteString(m.run(line))
			}
		}
		blocks = append(blocks, strings.TrimSpace(input+"\n----\n"+out.String()))
	}
	return strings.Join(blocks, "\n\n") + "\n"
}

// run does one command and returns what it prints.
func (m *model) run(line string) string {
	words := strings.Fields(line)
	switch words[0] {
	case "edit":
		for _, word := range words[1:] {
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
		if len(words) > 1 {
			m.available[m.set(words[1]).UID] = m.number(words[2])
		}
		m.settleAll(false)
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			m.t.Fatal(err)
		}
		m.now = m.now.Add(d)
	case "sets":
		return m.describeSets()
	case "adopt":
		set := newSet(&appsv1.Deployment{ObjectMeta: m.d.ObjectMeta, Spec: *m.d.Spec.DeepCopy()})
		set.Spec.Template.Spec.Containers[0].Image = strings.TrimPrefix(words[1], "image=")
		set.Name, set.UID = "web-adopted", types.UID("adopted")
		set.Spec.Replicas = ptr.To(m.number(words[2]))
		set.CreationTimestamp = metav1.NewTime(m.now.Add(-time.Hour))
		m.sets = append(m.sets, set)
	case "resize":
		m.set(words[1]).Spec.Replicas = ptr.To(m.number(words[2]))
		m.set(words[1]).Generation++
	case "ending":
		m.ending[m.set(words[1]).UID] = int(m.number(words[2]))
	case "fail":
		m.set(words[1]).Status.Conditions = []appsv1.ReplicaSetCondition{{
			Type: appsv1.ReplicaSetReplicaFailure, Status: "True", Reason: "FailedCreate", Message: strings.Join(words[2:], " "),
		}}
	default:
		m.t.Fatalf("unknown command %q", line)
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

// idle tells whether the plan changes nothing.
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
