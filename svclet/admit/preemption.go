package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/podspec"
)

// The reason and the message of a preempted pod, and of its condition
// DisruptionTarget (whose reason is TerminationByKubelet).
const (
	PreemptedReason           = "Preempting"
	PreemptedMessage          = "Preempted in order to admit critical pod"
	PreemptedConditionMessage = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// Victims returns the pods to preempt for a critical pod's [Refusal.Shortages]:
// best-effort pods before burstable ones before guaranteed ones, as few as
// possible, and smaller ones among equals. A critical pod is preempted only by one
// of higher priority. It returns an error if preempting all would not be enough.
func Victims(critical *corev1.Pod, others []*corev1.Pod, shortages []Shortage) ([]*corev1.Pod, error) {
	wanted := make(wants, 0, len(shortages))
	for _, s := range shortages {
		wanted = append(wanted, want{s.Resource, s.Missing()})
	}
	classes := map[corev1.PodQOSClass][]*corev1.Pod{}
	for _, other := range others {
		if other.UID != critical.UID && preemptable(critical, other) {
			class := podspec.QOSClassOf(other)
			classes[class] = append(classes[class], other)
		}
	}
	bestEffort, burstable, guaranteed := classes[corev1.PodQOSBestEffort], classes[corev1.PodQOSBurstable], classes[corev1.PodQOSGuaranteed]
	if left := wanted.without(slices.Concat(bestEffort, burstable, guaranteed)); len(left) > 0 {
		return nil, fmt.Errorf("preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: %v", left)
	}

	// Each class must free what the lower classes cannot; the lower classes then free
	// the remainder.
	guaranteed = wanted.without(slices.Concat(bestEffort, burstable)).choose(guaranteed)
	burstable = wanted.without(slices.Concat(bestEffort, guaranteed)).choose(burstable)
	bestEffort = wanted.without(slices.Concat(burstable, guaranteed)).choose(bestEffort)
	return slices.Concat(bestEffort, burstable, guaranteed), nil
}

// NoVictims returns the refusal of a critical pod for which [Victims] returned an
// error.
func NoVictims(err error) *Refusal {
	return &Refusal{
		Reason:  "UnexpectedAdmissionError",
		Message: "Unexpected error while attempting to recover from admission failure: " + err.Error(),
	}
}

func preemptable(critical, other *corev1.Pod) bool {
	if Critical(critical) && !Critical(other) {
		return true
	}
	a, b := critical.Spec.Priority, other.Spec.Priority
	return a != nil && b != nil && *a > *b
}

// want is an amount of a resource to be freed.
type want struct {
	resource corev1.ResourceName
	amount   int64
}

type wants []want

func (w wants) String() string {
	var out strings.Builder
	for _, want := range w {
		fmt.Fprintf(&out, "(res: %v, q: %d), ", want.resource, want.amount)
	}
	return "[" + out.String() + "]"
}

// without returns what is still to be freed after the pods are gone.
func (w wants) without(pods []*corev1.Pod) wants {
	var left wants
	for _, want := range w {
		for _, pod := range pods {
			want.amount -= freedBy(pod, want.resource)
		}
		if want.amount > 0 {
			left = append(left, want)
		}
	}
	return left
}

// choose selects pods until everything is freed, each time the one that leaves the
// least.
func (w wants) choose(pods []*corev1.Pod) []*corev1.Pod {
	var chosen []*corev1.Pod
	pods = slices.Clone(pods)
	for len(w) > 0 && len(pods) > 0 {
		best := slices.MinFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(
				cmp.Compare(w.distance(a), w.distance(b)),
				cmp.Compare(freedBy(a, corev1.ResourceMemory), freedBy(b, corev1.ResourceMemory)),
				cmp.Compare(freedBy(a, corev1.ResourceCPU), freedBy(b, corev1.ResourceCPU)))
		})
		w = w.without([]*corev1.Pod{best})
		chosen = append(chosen, best)
		pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return pod == best })
	}
	return chosen
}

// distance is how far a pod is from freeing everything, with equal weights for the
// resources.
func (w wants) distance(pod *corev1.Pod) float64 {
	var distance float64
	for _, want := range w {
		if left := float64(want.amount - freedBy(pod, want.resource)); left > 0 {
			distance += (left / float64(want.amount)) * (left / float64(want.amount))
		}
	}
	return distance
}

// freedBy returns how much of a resource a pod frees: what its admission counted,
// including overhead. (kubelet 1.36 counts less for pods with pod-level resources,
// and misses some victims.)
func freedBy(pod *corev1.Pod, name corev1.ResourceName) int64 {
	if name == corev1.ResourcePods {
		return 1
	}
	return amount(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}), name)
}
