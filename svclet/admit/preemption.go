package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"
)

// The reason and the message of a pod that had to make room, and of its
// condition DisruptionTarget (whose reason is TerminationByKubelet).
const (
	PreemptedReason           = "Preempting"
	PreemptedMessage          = "Preempted in order to admit critical pod"
	PreemptedConditionMessage = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// Victims are the pods to be killed so that a critical one has what it lacks
// ([Refusal.Shortages]): best-effort ones before burstable ones before
// guaranteed ones, as few as possible, and of those that free as much the
// smaller. Critical pods yield only to a higher priority. It is an error if
// killing all would not be enough.
func Victims(critical *corev1.Pod, others []*corev1.Pod, shortages []Shortage) ([]*corev1.Pod, error) {
	wanted := make(wants, 0, len(shortages))
	for _, s := range shortages {
		wanted = append(wanted, want{s.Resource, s.Missing()})
	}
	classes := map[corev1.PodQOSClass][]*corev1.Pod{}
	for _, other := range others {
		if other.UID != critical.UID && preemptable(critical, other) {
			class := qos.GetPodQOS(other)
			classes[class] = append(classes[class], other)
		}
	}
	bestEffort, burstable, guaranteed := classes[corev1.PodQOSBestEffort], classes[corev1.PodQOSBurstable], classes[corev1.PodQOSGuaranteed]
	if left := wanted.without(slices.Concat(bestEffort, burstable, guaranteed)); len(left) > 0 {
		return nil, fmt.Errorf("preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: %v", left)
	}

	// Each class gives what remains when those before it have given all, and
	// the classes before it then only what these leave to be given.
	guaranteed = wanted.without(slices.Concat(bestEffort, burstable)).choose(guaranteed)
	burstable = wanted.without(slices.Concat(bestEffort, guaranteed)).choose(burstable)
	bestEffort = wanted.without(slices.Concat(burstable, guaranteed)).choose(bestEffort)
	return slices.Concat(bestEffort, burstable, guaranteed), nil
}

// NoVictims is what becomes of a critical pod for which [Victims] has found
// nobody.
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

// want is an amount of a resource that is to be freed.
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

// without is what is still wanted when pods are gone.
func (w wants) without(pods []*corev1.Pod) wants {
	var left wants
	for _, want := range w {
		for _, pod := range pods {
			want.amount -= frees(pod, want.resource)
		}
		if want.amount > 0 {
			left = append(left, want)
		}
	}
	return left
}

// choose takes pods until nothing more is wanted, each time the one that leaves
// the least to be wanted.
func (w wants) choose(pods []*corev1.Pod) []*corev1.Pod {
	var chosen []*corev1.Pod
	pods = slices.Clone(pods)
	for len(w) > 0 && len(pods) > 0 {
		best := slices.MinFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(
				cmp.Compare(w.distance(a), w.distance(b)),
				cmp.Compare(frees(a, corev1.ResourceMemory), frees(b, corev1.ResourceMemory)),
				cmp.Compare(frees(a, corev1.ResourceCPU), frees(b, corev1.ResourceCPU)))
		})
		w = w.without([]*corev1.Pod{best})
		chosen = append(chosen, best)
		pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return pod == best })
	}
	return chosen
}

// distance is how far a pod is from freeing all that is wanted, each resource
// weighing the same.
func (w wants) distance(pod *corev1.Pod) float64 {
	var distance float64
	for _, want := range w {
		if left := float64(want.amount - frees(pod, want.resource)); left > 0 {
			distance += (left / float64(want.amount)) * (left / float64(want.amount))
		}
	}
	return distance
}

// frees is how much of a resource a pod leaves: what its admission counted,
// overhead and all. (kubelet of 1.36 counts less for pods with resources of
// their own, and does not find some victims.)
func frees(pod *corev1.Pod, name corev1.ResourceName) int64 {
	if name == corev1.ResourcePods {
		return 1
	}
	return amount(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}), name)
}
