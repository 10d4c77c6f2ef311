package rollout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// TestRandomRollouts lets users, pods and the controller of replica sets do
// things in random order, and checks each decision.
func TestRandomRollouts(t *testing.T) {
	runs := 400
	if testing.Short() {
		runs = 100
	}
	for seed := range runs {
		if s := simulate(t, seed, false); len(s.wrong) > 0 {
			s = simulate(t, seed, true)
			t.Fatalf("seed %d: %s\n%s", seed, s.wrong[0], strings.Join(s.log, ""))
		}
	}
}

func simulate(t *testing.T, seed int, verbose bool) *simulation {
	s := &simulation{model: newModel(t), rand: rand.New(rand.NewPCG(uint64(seed), 1)), verbose: verbose}
	for range 60 {
		s.act()
	}
	s.converge()
	return s
}

type simulation struct {
	*model
	rand     *rand.Rand
	revision int64

	wrong   []string
	log     []string // if verbose
	verbose bool
}

func (s *simulation) fail(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// act does one random thing. Decisions are as frequent as all else together.
func (s *simulation) act() {
	if s.rand.IntN(2) == 0 {
		s.decideAndCheck()
		return
	}
	switch s.rand.IntN(12) {
	case 0:
		s.user("image", fmt.Sprint(1+s.rand.IntN(5)))
	case 1:
		s.user("replicas", fmt.Sprint(s.rand.IntN(15)))
	case 2:
		s.user("maxSurge", []string{"0", "1", "4", "25%", "100%"}[s.rand.IntN(5)])
	case 3:
		s.user("maxUnavailable", []string{"0", "1", "4", "25%", "100%"}[s.rand.IntN(5)])
	case 4:
		s.user("paused", []string{"true", "false", "false"}[s.rand.IntN(3)])
	case 5:
		s.user("revisionHistoryLimit", fmt.Sprint(s.rand.IntN(4)))
	case 6:
		s.meddle()
	default:
		s.pods()
	}
}

// meddle is a user who scales a replica set or spoils its annotations.
func (s *simulation) meddle() {
	if len(s.sets) == 0 {
		return
	}
	set := s.sets[s.rand.IntN(len(s.sets))]
	if s.rand.IntN(2) == 0 {
		s.run("resize", []string{alias(set), fmt.Sprint(s.rand.IntN(10))})
	} else {
		annotation := []string{DesiredReplicas, MaxReplicas}[s.rand.IntN(2)]
		set.Annotations[annotation] = []string{"", "0", "-1", "7", "x", "3000000000"}[s.rand.IntN(6)]
	}
	s.log = append(s.log, "another client scales "+alias(set)+"\n")
}

func (s *simulation) user(key, value string) {
	s.log = append(s.log, fmt.Sprintf("edit %s=%s\n", key, value))
	s.edit(key, value)
}

// pods lets pods of a replica set become available or fail, and the controller
// count them, or do that later.
func (s *simulation) pods() {
	s.now = s.now.Add(time.Duration(s.rand.IntN(300)) * time.Second)
	if len(s.sets) == 0 {
		return
	}
	set := s.sets[s.rand.IntN(len(s.sets))]
	if s.rand.IntN(4) > 0 {
		s.available[set.UID] = size(set)
	} else {
		s.available[set.UID] = int32(s.rand.IntN(int(size(set)) + 1))
	}
	if s.rand.IntN(3) > 0 {
		s.settle(set)
	}
	s.log = append(s.log, fmt.Sprintf("pods %s available=%d\n", alias(set), s.available[set.UID]))
}

func (s *simulation) decideAndCheck() Plan {
	before := copies(s.sets)
	scaled := isScaled(s.d, s.sets)
	plan := s.decide()
	if s.verbose {
		s.log = append(s.log, s.describeSets(), "decide\n", s.describe(plan))
	}
	s.checkOrder(before, plan)
	s.apply(plan)
	s.check(before, scaled)
	return plan
}

// check compares the replica sets before and after the actions of one decision.
func (s *simulation) check(before []*appsv1.ReplicaSet, scaled bool) {
	total, totalBefore := sum(s.sets, size), sum(before, size)
	if most := largest(s.d); total > max(most, totalBefore) {
		s.fail("%d pods, more than %d and than before: %d", total, most, totalBefore)
	}
	// Scaling down makes old pods go by their part, available or not.
	if have, had := sum(s.sets, staying), sum(before, staying); !scaled && !s.d.Spec.Paused && have < min(leastAvailable(s.d), had) {
		s.fail("%d pods are available, were %d, must be %d", have, had, leastAvailable(s.d))
	}
	if (scaled || s.d.Spec.Paused) && len(active(before)) > 1 && !(newRollout(State{Deployment: s.d, Sets: before}).saturated()) {
		s.checkProportions(before, total)
	}
	s.checkRevisions()
}

// checkOrder: wherever the actions are interrupted, there are not more pods than
// there may be, or than before.
func (s *simulation) checkOrder(before []*appsv1.ReplicaSet, plan Plan) {
	total := sum(before, size)
	most := max(largest(s.d), total)
	for _, action := range plan.Actions {
		switch action.Verb {
		case Create:
			total += size(action.Set)
		case Change:
			total += size(action.Set) - size(action.Was)
		case Delete:
			total -= size(action.Was)
		}
		if total > most {
			s.fail("%d pods after the action on %s, more than %d", total, alias(action.Set), most)
		}
	}
}

// checkProportions: scaling several replica sets fills the deployment exactly,
// and no replica set changes by more than its part and the rest of rounding.
func (s *simulation) checkProportions(before []*appsv1.ReplicaSet, total int32) {
	most := largest(s.d)
	if *s.d.Spec.Replicas == 0 {
		most = 0
	}
	if total != most {
		s.fail("scaled to %d pods in all instead of %d", total, most)
	}
	grows := most > sum(before, size)
	for _, set := range before {
		i := slices.IndexFunc(s.sets, func(now *appsv1.ReplicaSet) bool { return now.UID == set.UID })
		if i < 0 {
			continue // beyond the history limit
		}
		if now := size(s.sets[i]); grows && now < size(set) || !grows && now > size(set) {
			s.fail("%s is scaled from %d to %d against the direction", alias(set), size(set), now)
		}
	}
}

// checkRevisions: the new replica set has the highest revision, which is the
// deployment's and never falls.
func (s *simulation) checkRevisions() {
	r := newRollout(State{Deployment: s.d, Sets: s.sets, Now: s.now})
	if r.fresh == nil {
		return
	}
	n := revision(r.fresh)
	for _, set := range r.old {
		if revision(set) >= n {
			s.fail("%s has revision %d, the new one has %d", alias(set), revision(set), n)
		}
	}
	if fmt.Sprint(n) != s.d.Annotations[Revision] {
		s.fail("the deployment's revision is %s, not %d", s.d.Annotations[Revision], n)
	}
	if n < s.revision {
		s.fail("the revision falls from %d to %d", s.revision, n)
	}
	s.revision = n
}

// converge lets the users be quiet and all pods be available: then the rollout
// comes to its end.
func (s *simulation) converge() {
	s.user("paused", "false")
	for range 200 {
		s.settleAll(true)
		status := s.d.Status
		if plan := s.decideAndCheck(); len(plan.Actions) == 0 && apiequality.Semantic.DeepEqual(plan.Status, status) {
			s.checkEnd()
			return
		}
	}
	s.fail("the rollout does not end")
}

func (s *simulation) checkEnd() {
	r := newRollout(State{Deployment: s.d, Sets: s.sets, Now: s.now})
	if r.fresh == nil || size(r.fresh) != *s.d.Spec.Replicas || sum(r.old, size) != 0 {
		s.fail("at the end:\n%s", s.describeSets())
	}
	if len(r.old) > int(*s.d.Spec.RevisionHistoryLimit) {
		s.fail("%d old replica sets are left", len(r.old))
	}
	if c := condition(&s.d.Status, appsv1.DeploymentProgressing); c.Reason != NewReplicaSetAvailable {
		s.fail("at the end: %s", c.Reason)
	}
	if !complete(s.d, &s.d.Status) {
		s.fail("not complete: %+v", s.d.Status)
	}
}

func isScaled(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) bool {
	return newRollout(State{Deployment: d, Sets: sets}).scaledSince()
}

func copies(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	var made []*appsv1.ReplicaSet
	for _, set := range sets {
		made = append(made, set.DeepCopy())
	}
	return made
}
