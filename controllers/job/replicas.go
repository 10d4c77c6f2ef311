package job

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/controllers/pods"
)

// replica is a pod that a job is to have.
type replica struct {
	index int // noIndex for a job without indexes
	// failures and ignored are how many pods of the index have failed before;
	// both are noIndex for a job that does not count by index.
	failures, ignored int
}

// replicas are the pods to create now when some are missing.
func (p *plan) replicas(missing int) []replica {
	perIndex := p.job.Spec.BackoffLimitPerIndex != nil
	if !perIndex {
		if wait := p.backoff.left(p.now); wait > 0 {
			p.lookAgain(wait)
			return nil
		}
	}
	if !isIndexed(p.job) {
		return slices.Repeat([]replica{{noIndex, noIndex, noIndex}}, min(missing, pods.Burst+1))
	}
	var now []replica
	for _, i := range p.pendingIndexes(min(missing, pods.Burst+1)) {
		r := replica{i, noIndex, noIndex}
		if perIndex {
			last := p.held[i]
			if wait := indexBackoff(last).left(p.now); wait > 0 {
				p.lookAgain(wait)
				continue
			}
			r.failures, r.ignored = p.failuresAfter(last)
		}
		now = append(now, r)
	}
	return now
}

// pendingIndexes are the first n that have no pod and need one.
func (p *plan) pendingIndexes(n int) []int {
	taken := p.activeIndexes().union(p.succeededIndexes).union(p.failedIndexes)
	if replacesFailedOnly(p.job) {
		taken = taken.union(indexesOfPods(p.terminating))
	}
	return taken.firstOutside(n, p.completions)
}

// indexBackoff is that of an index whose last pod has failed.
func indexBackoff(last *corev1.Pod) backoff {
	if last == nil {
		return backoff{}
	}
	return backoff{failures: allFailuresBefore(last) + 1, last: finishedAt(last)}
}

func (p *plan) failuresAfter(last *corev1.Pod) (failures, ignored int) {
	if last == nil {
		return 0, 0
	}
	failures = failuresBefore(last)
	ignored = allFailuresBefore(last) - failures
	if rule(p.job.Spec.PodFailurePolicy, last).counts() {
		return failures + 1, ignored
	}
	return failures, ignored + 1
}

// surplusPods are the active pods that there should not be: beyond what is
// wanted, and those that have no index, or one that another pod has, too.
func (p *plan) surplusPods(want int) []*corev1.Pod {
	left := slices.Clone(p.active)
	slices.SortStableFunc(left, expendable)
	var surplus []*corev1.Pod
	if isIndexed(p.job) {
		surplus, left = p.withoutPlace(left)
	}
	if more := len(p.active) - want - len(surplus); more > 0 {
		surplus = append(surplus, left[:more]...)
	}
	return surplus
}

// withoutPlace parts the pods that have no index of their own from the others.
// Of several with the same index, the least expendable stays.
func (p *plan) withoutPlace(active []*corev1.Pod) (without, left []*corev1.Pod) {
	taken := map[int]bool{}
	for _, pod := range slices.Backward(active) {
		if i := completionIndex(pod); !p.hasPlace(pod) || taken[i] {
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

// expendable orders active pods: those first that have come least far.
func expendable(a, b *corev1.Pod) int {
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

// indexVariable tells a container its completion index.
const indexVariable = "JOB_COMPLETION_INDEX"

// maxGenerateName is how much of a name's beginning the API server keeps.
const maxGenerateName = 58

// pod is the pod of a replica. kind is the kind of jobs.
func (r replica) pod(job *batchv1.Job, kind schema.GroupVersionKind) *corev1.Pod {
	pod := pods.FromTemplate(job, kind, &job.Spec.Template)
	if !isTracked(pod) {
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if r.index == noIndex {
		return pod
	}
	index := strconv.Itoa(r.index)
	set(&pod.Annotations, batchv1.JobCompletionIndexAnnotation, index)
	set(&pod.Labels, batchv1.JobCompletionIndexAnnotation, index)
	if r.failures != noIndex {
		set(&pod.Annotations, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(r.failures))
		if r.ignored > 0 {
			set(&pod.Annotations, batchv1.JobIndexIgnoredFailureCountAnnotation, strconv.Itoa(r.ignored))
		}
	}
	end := "-" + index + "-"
	pod.GenerateName = job.Name[:min(len(job.Name), maxGenerateName-len(end))] + end
	pod.Spec.Hostname = job.Name + "-" + index
	for i := range pod.Spec.InitContainers {
		addIndexVariable(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		addIndexVariable(&pod.Spec.Containers[i])
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

func set(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
