// Package groups compares how svc's scheduler and kube-scheduler 1.37 schedule pods in groups:
// which pods get a node or are nominated to one, which are preempted, the conditions of pods and
// PodGroups, and the events. Each has a server of svc of its own.
package groups

import (
	"context"
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"svc.dev/svc/test/peers/difference"
)

var only = flag.String("scenarios", "", "regular expression of the scenarios to compare; all when empty")

const (
	// calm is how long nothing may change in a scenario before the two are compared.
	calm = 1500 * time.Millisecond
	// longCalm is that if they are not equal then, and patience how long they may take.
	longCalm = 8 * time.Second
	patience = time.Minute
)

// TestTheListOfScenarios checks the list, without the systems.
func TestTheListOfScenarios(t *testing.T) {
	known := map[string]bool{}
	for _, s := range scenarios() {
		if known[s.name] || len(s.steps) == 0 {
			t.Errorf("there are two scenarios %q, or it has no steps", s.name)
		}
		known[s.name] = true
	}
}

// TestGroupsAreScheduledAsByKubeScheduler carries out all scenarios, one after another: each has
// all nodes of the cluster.
func TestGroupsAreScheduledAsByKubeScheduler(t *testing.T) {
	if os.Getenv("SVC") == "" {
		t.Skip("it compares the binary that $SVC names with kube-scheduler 1.37: run make test-peers-groups")
	}
	listed, err := difference.ReadList("differences.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	systems := start(t)
	var found []difference.Difference
	for _, s := range scenarios() {
		if !pattern.MatchString(s.name) {
			continue
		}
		t.Logf("%s", s.name)
		differences, err := compare(t.Context(), s, listed["groups"], systems)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		found = append(found, differences...)
		unexplained, _ := difference.Check(differences, listed["groups"])
		for _, d := range unexplained {
			t.Errorf("%s: %s:\n\tsvc:  %q\n\tkube: %q", d.Subject, d.Path, d.Svclet, d.Kubelet)
		}
	}
	_, obsolete := difference.Check(found, listed["groups"])
	for _, e := range obsolete {
		if *only == "" {
			t.Errorf("in the list, but not so: of %q: %s: %s", e.Of, e.Path, e.Reason)
		}
	}
}

// compare carries out a scenario, and returns the differences after its steps. What has differed
// already is not repeated.
func compare(ctx context.Context, s scenario, explained []difference.Explanation, systems []*system) (all []difference.Difference, err error) {
	known := map[difference.Difference]bool{}
	add := func(step string, found []difference.Difference) {
		for _, d := range found {
			if !known[d] {
				known[d] = true
				d.Subject = s.name + " | " + step + " | " + d.Subject
				all = append(all, d)
			}
		}
	}
	for _, system := range systems {
		if err := system.begin(ctx); err != nil {
			return nil, err
		}
	}
	for _, step := range s.steps {
		for _, system := range systems {
			if err := step.do(ctx, system); err != nil {
				return nil, err
			}
		}
		found, err := settle(ctx, s.name+" | "+step.what+" | ", explained, objects, systems)
		if err != nil {
			return nil, err
		}
		add(step.what, found)
	}
	found, err := settle(ctx, s.name+" | end | ", explained, events, systems)
	if err != nil {
		return nil, err
	}
	add("end", found)
	for _, system := range systems {
		if err := system.cleanUp(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// settle waits until both are at rest, longer if they differ, and returns the differences between
// what a function returns of them.
func settle(ctx context.Context, subject string, explained []difference.Explanation, of func(*view) map[string]difference.Fields, systems []*system) (found []difference.Difference, err error) {
	var last [2]map[string]difference.Fields
	began, changed := time.Now(), time.Now()
	same := func(a, b map[string]difference.Fields) bool {
		return maps.EqualFunc(a, b, func(a, b difference.Fields) bool { return maps.Equal(a, b) })
	}
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, false, func(ctx context.Context) (bool, error) {
		var now [2]map[string]difference.Fields
		for i, system := range systems {
			v, err := system.view(ctx)
			if err != nil {
				return false, err
			}
			now[i] = of(v)
		}
		if !same(now[0], last[0]) || !same(now[1], last[1]) {
			last, changed = now, time.Now()
		}
		quiet, late := time.Since(changed), time.Since(began) > patience
		if quiet < calm && !late {
			return false, nil
		}
		found = between(now[0], now[1])
		full := slices.Clone(found)
		for i := range full {
			full[i].Subject = subject + full[i].Subject
		}
		unexplained, _ := difference.Check(full, explained)
		return len(unexplained) == 0 || quiet > longCalm || late, nil
	})
	return found, err
}

// between returns the differences between the subjects of both.
func between(ours, theirs map[string]difference.Fields) (found []difference.Difference) {
	subjects := maps.Clone(ours)
	maps.Copy(subjects, theirs)
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		found = append(found, difference.Between(subject, ours[subject], theirs[subject])...)
	}
	return found
}
