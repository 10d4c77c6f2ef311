package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/controllers/pods"
)

// Replica is a pod to create.
type Replica struct {
	index int // NoIndex for a job without indexes
	// failures and ignored are the numbers of failed pods of the index that count
	// and that the pod failure policy ignores; both are NoIndex for a job without
	// backoffLimitPerIndex.
	failures, ignored int
}

// replicas returns the pods to create now, at most as many as are missing.
func (p *Plan) replicas(missing int) []Replica {
	perIndex := p.Job.Spec.BackoffLimitPerIndex != nil
	if !perIndex {
		if wait := p.Backoff.left(p.Now); wait > 0 {
			p.requeueAfter(wait)
			return nil
		}
	}
	if !IsIndexed(p.Job) {
		return slices.Repeat([]Replica{{NoIndex, NoIndex, NoIndex}}, min(missing, pods.Burst+1))
	}
	var now []Replica
	for _, i := range p.pendingIndexes(min(missing, pods.Burst+1)) {
		r := Replica{i, NoIndex, NoIndex}
		if perIndex {
			last := p.delayedRelease[i]
			if wait := indexBackoff(last).left(p.Now); wait > 0 {
				p.requeueAfter(wait)
				continue
			}
			r.failures, r.ignored = p.failuresAfter(last)
		}
		now = append(now, r)
	}
	return now
}

// pendingIndexes returns the first n indexes that need a pod and have none.
func (p *Plan) pendingIndexes(n int) []int {
	taken := p.activeIndexes().Union(p.succeededIndexes).Union(p.failedIndexes)
	if replacesFailedOnly(p.Job) {
		taken = taken.Union(indexesOfPods(p.terminating))
	}
	return taken.firstOutside(n, p.completions)
}

// indexBackoff returns the backoff of an index whose last pod has failed.
func indexBackoff(last *corev1.Pod) Backoff {
	if last == nil {
		return Backoff{}
	}
	return Backoff{failures: allFailuresBefore(last) + 1, last: finishedAt(last)}
}

func (p *Plan) failuresAfter(last *corev1.Pod) (failures, ignored int) {
	if last == nil {
		return 0, 0
	}
	failures = failuresBefore(last)
	ignored = allFailuresBefore(last) - failures
	if matchFailurePolicy(p.Job.Spec.PodFailurePolicy, last).counts() {
		return failures + 1, ignored
	}
	return failures, ignored + 1
}

// excessPods returns the active pods to delete: those beyond the wanted number,
// and those whose index is invalid or taken by another pod.
func (p *Plan) excessPods(want int) []*corev1.Pod {
	left := slices.Clone(p.active)
	slices.SortStableFunc(left, byDeletionOrder)
	var excess []*corev1.Pod
	if IsIndexed(p.Job) {
		excess, left = p.splitDuplicates(left)
	}
	if more := len(p.active) - want - len(excess); more > 0 {
		excess = append(excess, left[:more]...)
	}
	return excess
}

// splitDuplicates separates the pods without an index of their own from the
// others. Of several pods with the same index, the last in deletion order stays.
func (p *Plan) splitDuplicates(active []*corev1.Pod) (without, left []*corev1.Pod) {
	taken := map[int]bool{}
	for _, pod := range slices.Backward(active) {
		if i := CompletionIndex(pod); !p.hasValidIndex(pod) || taken[i] {
			without = append(without, pod)
		} else {
			taken[i] = true
			left = append(left, pod)
		}
	}
	slices.Reverse(without)
	slices.Reverse(left)
	return without, left
}

// byDeletionOrder orders active pods: pods that are unassigned, pending or not
// ready are deleted first.
func byDeletionOrder(a, b *corev1.Pod) int {
	first := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}
	phases := []corev1.PodPhase{corev1.PodPending, corev1.PodUnknown, corev1.PodRunning}
	return cmp.Or(
		first(a.Spec.NodeName == "", b.Spec.NodeName == ""),
		cmp.Compare(slices.Index(phases, a.Status.Phase), slices.Index(phases, b.Status.Phase)),
		first(!pods.IsReady(a), !pods.IsReady(b)),
		pods.ReadyAt(b).Compare(pods.ReadyAt(a)),
		cmp.Compare(mostRestarts(b), mostRestarts(a)),
		b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
	)
}

func mostRestarts(pod *corev1.Pod) int32 {
	most := int32(0)
	for _, s := range pod.Status.ContainerStatuses {
		most = max(most, s.RestartCount)
	}
	return most
}

// indexVariable is the environment variable with the completion index.
const indexVariable = "JOB_COMPLETION_INDEX"

// maxGenerateName is the length of generateName that the API server keeps.
const maxGenerateName = 58

// Pod returns the pod of a replica. kind is the kind of jobs.
func (r Replica) Pod(job *batchv1.Job, kind schema.GroupVersionKind) *corev1.Pod {
	pod := pods.FromTemplate(job, kind, &job.Spec.Template)
	if !IsTracked(pod) {
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if r.index == NoIndex {
		return pod
	}
	index := strconv.Itoa(r.index)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, index)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, index)
	if r.failures != NoIndex {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(r.failures))
		if r.ignored > 0 {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobIndexIgnoredFailureCountAnnotation, strconv.Itoa(r.ignored))
		}
	}
	end := "-" + index + "-"
	pod.GenerateName = job.Name[:min(len(job.Name), maxGenerateName-len(end))] + end
	pod.Spec.Hostname = job.Name + "-" + index
	for _, c := range podspec.NonEphemeral(&pod.Spec) {
		addIndexVariable(c)
	}
	return pod
}

func addIndexVariable(c *corev1.Container) {
	if slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == indexVariable }) {
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation)},
	}})
}
