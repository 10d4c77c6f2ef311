// Package controllers compares what svc's controllers and kube-controller-manager do in the
// same scenarios: the objects after each step of a script, their conditions, the events, and
// the order in which objects are created, scaled and deleted.
package controllers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"svc.dev/svc/test/peers/difference"
)

var (
	only     = flag.String("scenarios", "", "regular expression of the scenarios to compare; all when empty")
	together = flag.Int("together", 32, "scenarios at the same time")
	report   = flag.String("report", "", "file to write all differences to that are not in the list")
)

const (
	// calm is how long nothing may change in a scenario before the systems are compared.
	calm = 1500 * time.Millisecond
	// longCalm is that if they are not equal then, and patience how long they may take.
	longCalm = 10 * time.Second
	patience = time.Minute
	// repetitions bounds steps that are repeated.
	repetitions = 30
)

// TestTheListOfScenarios checks the list, without the systems.
func TestTheListOfScenarios(t *testing.T) {
	known := map[string]bool{}
	for _, s := range scenarios() {
		if known[s.name] {
			t.Errorf("there are two scenarios %q", s.name)
		}
		known[s.name] = true
	}
	t.Logf("%d scenarios", len(known))
	if len(known) < 300 {
		t.Errorf("there are %d scenarios, want 300 at least", len(known))
	}
}

// TestNoExplanationHidesAnEnd checks that no difference of the list is any difference of
// the objects that a scenario leaves.
func TestNoExplanationHidesAnEnd(t *testing.T) {
	listed, err := difference.ReadList("differences.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ends := []string{
		"Kind name", "Pod web@PLACE-a~* 1 of 1", "Pod web-0", "Pod p", "Deployment web", "ReplicaSet web~1", "DaemonSet web", "StatefulSet web",
		"ControllerRevision web~1", "Job web", "CronJob cron", "Job cron~1", "Namespace PLACE", "Node PLACE-a", "PersistentVolume PLACE-v",
	}
	for _, path := range []string{"(object)", "any field", "metadata.any", "spec.any", "status.any"} {
		d := difference.Difference{Path: path, Svclet: "a", Kubelet: "b"}
		var differences []difference.Difference
		for _, s := range scenarios() {
			for _, end := range ends {
				d.Subject = s.name + " | end | " + end
				differences = append(differences, d)
			}
		}
		for _, e := range listed["controllers"] {
			unexplained, _ := difference.Check(differences, []difference.Explanation{e})
			if accepted := len(differences) - len(unexplained); accepted > 0 {
				t.Errorf("any difference of %s is accepted at the end of %d objects: %+v", path, accepted, e)
			}
		}
	}
}

// TestControllersDoTheSame carries out all scenarios.
func TestControllersDoTheSame(t *testing.T) {
	if os.Getenv("SVC") == "" {
		t.Skip("it compares the binary that $SVC names with kube-controller-manager: run make test-peers-controllers")
	}
	listed, err := difference.ReadList("differences.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	listing := io.Discard
	if *report != "" {
		file, err := os.Create(*report)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		listing = file
	}
	svc, kube := start(t)
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		found   []difference.Difference
		count   int
		slots   = make(chan struct{}, *together)
	)
	for i, s := range scenarios() {
		if !pattern.MatchString(s.name) {
			continue
		}
		count++
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			place := fmt.Sprintf("s%03d", i)
			differences, err := compare(t.Context(), s, listed["controllers"], &side{system: svc, place: place}, &side{system: kube, place: place})
			unexplained, _ := difference.Check(differences, listed["controllers"])
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
			for _, d := range unexplained {
				text := fmt.Sprintf("%s: %s:\n\tsvc:  %q\n\tkube: %q", d.Subject, d.Path, d.Svclet, d.Kubelet)
				t.Error(text)
				fmt.Fprintln(listing, text)
			}
			found = append(found, differences...)
		})
	}
	running.Wait()
	unexplained, obsolete := difference.Check(found, listed["controllers"])
	if *only == "" {
		for _, e := range obsolete {
			t.Errorf("in the list, but not so: of %q: %s: %s", e.Of, e.Path, e.Reason)
		}
	}
	t.Logf("%d scenarios, %d differences, %d of them not explained", count, len(found), len(unexplained))
}

// compare carries out a scenario, and returns the differences after its steps. What has
// differed already is not repeated.
func compare(ctx context.Context, s scenario, explained []difference.Explanation, sides ...*side) (all []difference.Difference, err error) {
	known := map[difference.Difference]bool{}
	add := func(step string, found []difference.Difference) {
		for _, d := range found {
			about := d.Subject
			d.Subject = ""
			d.Path = about + ": " + d.Path
			if known[d] {
				continue
			}
			known[d] = true
			d.Path = strings.TrimPrefix(d.Path, about+": ")
			d.Subject = s.name + " | " + step + " | " + about
			all = append(all, d)
		}
	}
	defer func() {
		for _, side := range sides {
			err = errors.Join(err, side.cleanUp(ctx))
		}
	}()
	for _, side := range sides {
		if err := side.begin(ctx); err != nil {
			return all, fmt.Errorf("%s: %w", side.name, err)
		}
	}
	for i, step := range s.steps {
		for range repetitions {
			began := time.Now()
			errs := act(ctx, step, sides)
			what := fmt.Sprintf("%d %s", i+1, step.what)
			add(what, difference.Between("response", errs[0], errs[1]))
			found, err := settle(ctx, step, s.name+" | "+what, explained, differentObjects, sides)
			if err != nil {
				return all, fmt.Errorf("step %s: %w", what, err)
			}
			add(what, found)
			if !step.again {
				break
			}
			changed, err := changedSince(began, sides)
			if err != nil {
				return all, err
			}
			if sides[0].done+sides[1].done == 0 && !changed {
				break
			}
		}
	}
	// What the steps of a rollout have made different may be equal in the end: the objects
	// are compared again, so that an explanation of steps does not hide the end.
	clear(known)
	left, err := differentObjects(sides)
	if err != nil {
		return all, err
	}
	add("end", left)
	// Events are written after what they are about: they are compared at the end.
	found, err := settle(ctx, step{}, s.name+" | end", explained, differentEvents, sides)
	if err != nil {
		return all, err
	}
	add("end", found)
	var orders [2]difference.Fields
	for i, side := range sides {
		side.recorder.read(side.place, func(p *record) { orders[i] = order(side.place, p) })
	}
	add("end", difference.Between("order", orders[0], orders[1]))
	return all, nil
}

// changedSince reports whether anything has changed since a time: a controller that has
// retried late gives the node new work.
func changedSince(began time.Time, sides []*side) (bool, error) {
	for _, side := range sides {
		quiet, err := side.recorder.quiet(side.place)
		if err != nil || quiet < time.Since(began) {
			return err == nil, err
		}
	}
	return false, nil
}

// cleanUp deletes the nodes of the scenario: other scenarios would count them. The rest
// stays, as its deletion would slow the others down.
func (s *side) cleanUp(ctx context.Context) error {
	var left []*unstructured.Unstructured
	s.recorder.read(s.place, func(p *record) { left = slices.Collect(maps.Values(p.live)) })
	var errs []error
	for _, o := range left {
		if o.GetKind() != "Node" {
			continue
		}
		if err := s.resource(o.GetKind()).Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// begin creates the namespace and waits until it has what each gets.
func (s *side) begin(ctx context.Context) error {
	if _, err := s.typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.place}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < patience; {
		if s.recorder.find(s.place, "ServiceAccount", "default") != nil && s.recorder.find(s.place, "ConfigMap", "kube-root-ca.crt") != nil {
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("namespace %s has got no service account or root certificate", s.place)
}

// act carries out a step, and returns what the systems answer.
func act(ctx context.Context, step step, sides []*side) []difference.Fields {
	answers := make([]difference.Fields, len(sides))
	var acting sync.WaitGroup
	for i, side := range sides {
		side.done = 0
		answers[i] = difference.Fields{}
		if step.do == nil {
			continue
		}
		acting.Go(func() {
			if err := step.do(ctx, side); err != nil {
				answers[i]["error"] = err.Error()
			}
		})
	}
	acting.Wait()
	return answers
}

// settle waits until both systems are at rest, longer if they differ, and returns the
// differences.
func settle(ctx context.Context, step step, subject string, explained []difference.Explanation, differences func([]*side) ([]difference.Difference, error), sides []*side) ([]difference.Difference, error) {
	for began := time.Now(); ; {
		if err := pause(ctx); err != nil {
			return nil, err
		}
		quiet, reached := time.Since(began), true
		for _, side := range sides {
			q, err := side.recorder.quiet(side.place)
			if err != nil {
				return nil, err
			}
			quiet = min(quiet, q)
			reached = reached && side.synced() && (step.until == nil || step.until(side))
		}
		late := time.Since(began) > patience
		if quiet < calm && !late {
			continue
		}
		found, err := differences(sides)
		if err != nil {
			return nil, err
		}
		for i := range found {
			found[i].Subject = subject + " | " + found[i].Subject
		}
		unexplained, _ := difference.Check(found, explained)
		for i := range found {
			found[i].Subject = strings.TrimPrefix(found[i].Subject, subject+" | ")
		}
		if late && !reached {
			for i, side := range sides {
				if step.until != nil && !step.until(side) {
					d := difference.Difference{Subject: "condition", Path: "reached"}
					if i == 0 {
						d.Svclet = "no"
					} else {
						d.Kubelet = "no"
					}
					found = append(found, d)
				}
			}
		}
		if late || reached && (len(unexplained) == 0 || quiet > longCalm) {
			return found, nil
		}
	}
}

// synced reports whether the controllers have seen the newest generation of each object.
func (s *side) synced() bool {
	synced := true
	s.recorder.read(s.place, func(p *record) {
		for _, o := range p.live {
			seen, ok, err := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
			if ok && err == nil && seen != o.GetGeneration() && o.GetKind() != "Pod" && o.GetDeletionTimestamp() == nil {
				synced = false
			}
		}
	})
	return synced
}

// differentObjects compares the objects of both systems, but for the events.
func differentObjects(sides []*side) ([]difference.Difference, error) {
	var all [2]map[string]difference.Fields
	for i, side := range sides {
		var err error
		side.recorder.read(side.place, func(p *record) { all[i], err = snapshot(side.place, p) })
		if err != nil {
			return nil, err
		}
	}
	subjects := maps.Clone(all[0])
	maps.Copy(subjects, all[1])
	var found []difference.Difference
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		ours, theirs := all[0][subject], all[1][subject]
		switch {
		case ours == nil:
			found = append(found, difference.Difference{Subject: subject, Path: "(object)", Svclet: difference.Absent, Kubelet: "exists"})
		case theirs == nil:
			found = append(found, difference.Difference{Subject: subject, Path: "(object)", Svclet: "exists", Kubelet: difference.Absent})
		default:
			found = append(found, difference.Between(subject, ours, theirs)...)
		}
	}
	return found, nil
}

// differentEvents compares how many events say what.
func differentEvents(sides []*side) ([]difference.Difference, error) {
	var all [2]difference.Fields
	for i, side := range sides {
		side.recorder.read(side.place, func(p *record) { all[i] = eventsOf(side.place, p) })
	}
	return difference.Between("events", all[0], all[1]), nil
}

// pause lets the systems work for a moment.
func pause(ctx context.Context) error {
	timer := time.NewTimer(200 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
