package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis"
	"svc.dev/svc/controllers/job/decide"
	"svc.dev/svc/controllers/pods"
)

// TestEveryPodCountsOnceDespiteCrashes simulates random jobs with random actions of
// users and nodes, caches that lag behind, writes that fail or conflict, and
// crashes between any two writes. No pod is counted twice or lost, and every job
// finishes with the right status. The environment variable SIMULATIONS sets the
// number of jobs, and SIMULATION runs a single seed.
func TestEveryPodCountsOnceDespiteCrashes(t *testing.T) {
	n := 1000
	if s := os.Getenv("SIMULATIONS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	from := uint64(0)
	if s := os.Getenv("SIMULATION"); s != "" {
		from, _ = strconv.ParseUint(s, 10, 64)
		n = 1
	}
	kinds := apis.Kinds()
	scheme := apis.NewExternalScheme(kinds)
	ends := map[string]int{}
	for seed := from; seed < from+uint64(n); seed++ {
		s := newSimulation(newAPIServer(kinds, scheme), seed)
		s.play()
		if len(s.faults) > 0 {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(s.faults, "\n"), strings.Join(s.log, "\n"))
		}
		ends[s.job.Status.Conditions[len(s.job.Status.Conditions)-1].Reason]++
	}
	t.Logf("%d jobs ended: %v", n, ends)
}

// simulation is an apiServer with its invariants.
type simulation struct {
	*apiServer
	r      *rand.Rand
	log    []string
	faults []string

	// listed are the pods that were ever listed as uncounted, and counted those
	// that were added to the counters.
	listed, counted map[types.UID]string
	// succeeded are the pods that succeeded with the finalizer before the job
	// finished.
	succeeded map[types.UID]int
	wake      time.Time
}

func newSimulation(w *apiServer, seed uint64) *simulation {
	s := &simulation{
		apiServer: w, r: rand.New(rand.NewPCG(seed, 1)),
		listed: map[types.UID]string{}, counted: map[types.UID]string{}, succeeded: map[types.UID]int{},
	}
	s.random = rand.New(rand.NewPCG(seed, 2))
	s.wrote = func(what string) { s.note("    %s", what) }
	s.validated = s.checkStatus
	return s
}

func (s *simulation) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *simulation) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// play takes random steps, and then runs the job until it finishes.
func (s *simulation) play() {
	if errs := s.setJob(s.spec); len(errs) > 0 {
		s.fault("the job is invalid: %v", errs)
		return
	}
	shown := s.job.Spec
	shown.Template, shown.Selector = corev1.PodTemplateSpec{}, nil
	if text, err := json.Marshal(shown); err == nil {
		s.note("%s", text)
	}
	s.fail = s.failSometimes
	for range 20 + s.r.IntN(60) {
		s.step()
	}
	s.note("from now on no write fails")
	s.fail, s.random = nil, nil
	if decide.IsSuspended(s.job) || *s.job.Spec.Parallelism == 0 {
		s.setJob(func(spec *batchv1.JobSpec) { spec.Suspend, spec.Parallelism = nil, ptr.To(max(1, *spec.Parallelism)) })
	}
	s.wake = s.now
	for i := 0; !decide.IsFinished(s.job) || i == 0; i++ {
		if i > 500 {
			s.fault("the job does not finish: %+v", s.job.Status)
			return
		}
		s.advance()
	}
	s.note("sync orphans")
	s.syncOrphans()
	s.checkEnd()
}

// advance terminates all pods, or advances the clock if there are none.
func (s *simulation) advance() {
	before := len(s.changes)
	for _, name := range s.podNames() {
		switch pod := s.pods[name]; {
		case pods.IsTerminating(pod):
			s.finish(name, 143, true)
		case pods.IsActive(pod):
			s.finish(name, int32(s.r.IntN(2)), false)
		}
	}
	if before == len(s.changes) && s.wake.After(s.now) {
		s.now = s.wake
	}
	s.syncNow()
	if before == len(s.changes) && !s.wake.After(s.now) && !decide.IsFinished(s.job) {
		s.fault("the job is not requeued: %+v", s.job.Status)
	}
}

func (s *simulation) syncNow() {
	s.note("sync at %s", s.now.Format(time.TimeOnly))
	again, err := s.sync()
	s.wake = s.now.Add(again)
	switch {
	case errors.Is(err, errCrash):
		s.note("    crashed")
		s.wake = s.now.Add(time.Millisecond)
	case err != nil:
		s.note("    %v", err)
		s.wake = s.now.Add(time.Second)
	}
	if len(s.invalid) > 0 {
		s.fault("the API server rejects the status: %v", s.invalid)
	}
}

// spec sets a random spec.
func (s *simulation) spec(spec *batchv1.JobSpec) {
	maybe := func(n int) *int32 {
		if s.r.IntN(2) == 0 {
			return nil
		}
		return ptr.To(int32(s.r.IntN(n)))
	}
	spec.Parallelism = ptr.To(int32(1 + s.r.IntN(4)))
	if s.r.IntN(4) > 0 {
		spec.Completions = ptr.To(int32(1 + s.r.IntN(6)))
	}
	spec.BackoffLimit = maybe(8)
	if s.r.IntN(4) == 0 {
		spec.ActiveDeadlineSeconds = ptr.To(int64(1 + s.r.IntN(100)))
	}
	if s.r.IntN(2) == 0 {
		spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
	}
	if s.r.IntN(4) == 0 {
		spec.Suspend = ptr.To(true)
	}
	if spec.Completions != nil && s.r.IntN(2) == 0 {
		spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		if spec.BackoffLimitPerIndex = maybe(3); spec.BackoffLimitPerIndex != nil {
			spec.MaxFailedIndexes = maybe(int(*spec.Completions))
		}
		if s.r.IntN(3) == 0 {
			spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededCount: ptr.To(1 + int32(s.r.IntN(int(*spec.Completions))))}}}
		}
	}
	if s.r.IntN(3) == 0 {
		rule := batchv1.PodFailurePolicyRule{
			Action:      []batchv1.PodFailurePolicyAction{batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex}[s.r.IntN(4)],
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{2}},
		}
		if rule.Action == batchv1.PodFailurePolicyActionFailIndex && spec.BackoffLimitPerIndex == nil {
			rule.Action = batchv1.PodFailurePolicyActionCount
		}
		spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{rule}}
		spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
	}
}

// step takes one random step.
func (s *simulation) step() {
	switch n := s.r.IntN(20); {
	case n < 8:
		if s.r.IntN(3) == 0 {
			s.crash = s.r.IntN(8)
			s.note("the process crashes after %d writes", s.crash)
		}
		s.syncNow()
	case n < 14:
		s.stepPod()
	case n < 16:
		s.now = s.now.Add(time.Duration(s.r.IntN(15000)) * time.Millisecond)
	case n == 16:
		s.note("a user writes the job without a change")
		s.rewriteJob()
	case n == 17:
		s.note("sync orphans")
		s.syncOrphans()
	case n == 18 && !decide.IsFinished(s.job):
		suspend := s.r.IntN(2) == 0
		s.note("suspend: %v", suspend)
		s.setJob(func(spec *batchv1.JobSpec) { spec.Suspend = &suspend })
	case n == 19 && !decide.IsFinished(s.job):
		parallelism := int32(s.r.IntN(5))
		s.note("parallelism: %d", parallelism)
		s.setJob(func(spec *batchv1.JobSpec) { spec.Parallelism = &parallelism })
	}
}

func (s *simulation) podNames() []string {
	var names []string
	for name := range s.pods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *simulation) stepPod() {
	names := s.podNames()
	if len(names) == 0 {
		return
	}
	name := names[s.r.IntN(len(names))]
	pod := s.pods[name]
	code := []int32{0, 0, 0, 1, 2}[s.r.IntN(5)]
	switch n := s.r.IntN(10); {
	case pods.IsTerminating(pod) && n < 4:
		s.finish(name, code, true)
	case pods.IsTerminal(pod):
	case pod.DeletionTimestamp == nil && n == 0:
		s.note("delete %s", name)
		s.deletePod(name)
	case pod.Status.Phase == corev1.PodPending && n < 5:
		s.note("start %s", name)
		s.update(name, start)
	default:
		s.finish(name, code, false)
	}
}

// finish terminates the containers of a pod.
func (s *simulation) finish(name string, code int32, gone bool) {
	pod := s.pods[name]
	if code == 0 && decide.IsTracked(pod) && !decide.IsFinished(s.job) {
		s.succeeded[pod.UID] = decide.CompletionIndex(pod)
	}
	s.note("end %s with %d", name, code)
	if gone {
		s.endPod(name, code)
	} else {
		s.end(name, code)
	}
}

// failSometimes fails random writes. A failed creation is never stored, as that
// allows for excess pods.
func (s *simulation) failSometimes(what string) (error, bool) {
	if s.random.IntN(15) > 0 {
		return nil, true
	}
	happens := what != "create" && s.random.IntN(2) == 0
	s.note("    %s fails; stored: %v", what, happens)
	return apierrors.NewTimeoutError("too slow", 1), happens
}

// checkStatus checks a status that is written against the stored one.
func (s *simulation) checkStatus(now, old *batchv1.Job) {
	st := now.Status
	s.note("    active %d ready %d terminating %d succeeded %d failed %d uncounted %v indexes %q %v", st.Active, *st.Ready, *st.Terminating, st.Succeeded, st.Failed, *st.UncountedTerminatedPods, st.CompletedIndexes, ptr.Deref(st.FailedIndexes, ""))
	before, after := uncountedOf(old), uncountedOf(now)
	left := map[string]int32{}
	for uid, as := range after {
		if before[uid] == "" && s.listed[uid] != "" {
			s.fault("%s is listed again", uid)
		}
		if pod := s.pods[string(uid)]; before[uid] == "" && as == "succeeded" && (pod == nil || pod.Status.Phase != corev1.PodSucceeded) {
			s.fault("%s has not succeeded", uid)
		}
		s.listed[uid] = as
	}
	for uid, as := range before {
		if after[uid] == "" {
			left[as]++
			s.counted[uid] = as
		}
	}
	if d := st.Failed - old.Status.Failed; d != left["failed"] {
		s.fault("failed grows by %d, but %d pods are counted", d, left["failed"])
	}
	if d := st.Succeeded - old.Status.Succeeded; !decide.IsIndexed(now) && d != left["succeeded"] {
		s.fault("succeeded grows by %d, but %d pods are counted", d, left["succeeded"])
	}
}

func uncountedOf(job *batchv1.Job) map[types.UID]string {
	all := map[types.UID]string{}
	if u := job.Status.UncountedTerminatedPods; u != nil {
		for _, uid := range u.Succeeded {
			all[uid] = "succeeded"
		}
		for _, uid := range u.Failed {
			all[uid] = "failed"
		}
	}
	return all
}

// checkEnd checks a job that has finished.
func (s *simulation) checkEnd() {
	st := s.job.Status
	for _, pod := range s.pods {
		if decide.IsTracked(pod) {
			s.fault("%s has the finalizer", pod.Name)
		}
		if pods.IsActive(pod) {
			s.fault("%s is active", pod.Name)
		}
	}
	var done []int
	for uid, index := range s.succeeded {
		done = append(done, index)
		if s.counted[uid] == "" && !decide.IsIndexed(s.job) {
			s.fault("the success of %s is not counted", uid)
		}
	}
	completed := decide.TrueCondition(&st, batchv1.JobComplete)
	completions := ptr.Deref(s.job.Spec.Completions, 0)
	if decide.IsIndexed(s.job) {
		have, all := decide.ParseIndexes(st.CompletedIndexes, int(completions)), decide.IndexesOf(done...)
		if all.Union(have).Count() != all.Count() || have.Count() != int(st.Succeeded) {
			s.fault("%s are completed, but %s have succeeded", have, all)
		}
	}
	if completed == nil || completed.Reason != batchv1.JobReasonCompletionsReached {
		return
	}
	if s.job.Spec.Completions != nil && st.Succeeded != completions {
		s.fault("%d have succeeded of %d", st.Succeeded, completions)
	}
	if s.job.Spec.Completions == nil && st.Succeeded == 0 {
		s.fault("no pod of the work queue has succeeded")
	}
}
