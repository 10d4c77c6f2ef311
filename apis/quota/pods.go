package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	library "k8s.io/apiserver/pkg/quota/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/devices"
	"svc.dev/svc/apis/podspec"
)

const countPods corev1.ResourceName = "count/pods"

func pods(now func() time.Time) *evaluator {
	return &evaluator{
		resource: "pods",
		measures: measuresPods,
		usage: func(item runtime.Object) (corev1.ResourceList, error) {
			pod, ok := item.(*corev1.Pod)
			if !ok {
				return nil, kindError("pods", item)
			}
			return PodUsage(pod, now()), nil
		},
		inScope:     podInScope,
		constraints: podConstraints,
		handles:     handlesPod,
	}
}

// podResources returns the resources of a quota that pods use and that have fixed
// names.
func podResources() []corev1.ResourceName {
	return []corev1.ResourceName{
		countPods, corev1.ResourcePods,
		corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
		corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory,
		corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsEphemeralStorage,
	}
}

func measuresPods(name corev1.ResourceName) bool {
	extended, requests := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	return slices.Contains(podResources(), name) ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) ||
		requests && devices.IsExtendedResource(corev1.ResourceName(extended))
}

// PodUsage returns a pod's usage of a quota. A pod that has terminated, or whose
// grace period is over, uses only storage: count/pods.
func PodUsage(pod *corev1.Pod, now time.Time) corev1.ResourceList {
	usage := corev1.ResourceList{countPods: count(1)}
	if end, ends := PodEnds(pod); ends && now.After(end) {
		return usage
	}
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	maps.Copy(usage, compute(resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options)))
	return usage
}

// PodEnds returns the time from which a pod uses no compute resources of a quota,
// and whether it is known: it is the end of the grace period, even if the node
// has not confirmed it. For a terminated pod it is the zero time.
func PodEnds(pod *corev1.Pod) (time.Time, bool) {
	if podspec.IsTerminal(pod.Status.Phase) {
		return time.Time{}, true
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return time.Time{}, false
	}
	return pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second), true
}

// compute returns requests and limits under the names that quotas have for them.
func compute(requests, limits corev1.ResourceList) corev1.ResourceList {
	usage := corev1.ResourceList{corev1.ResourcePods: count(1)}
	for name, amount := range requests {
		native := name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if native {
			usage[name] = amount
		}
		if native || devices.IsExtendedResource(name) {
			usage[corev1.DefaultResourceRequestsPrefix+name] = amount
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if amount, ok := limits[name]; ok {
			usage["limits."+name] = amount
		}
	}
	return usage
}

// podInScope reports whether a quota with this scope limits a pod.
func podInScope(s corev1.ScopedResourceSelectorRequirement, item runtime.Object) (bool, error) {
	pod, ok := item.(*corev1.Pod)
	if !ok {
		return false, kindError("pods", item)
	}
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminates(pod), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminates(pod), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod), nil
	case corev1.ResourceQuotaScopePriorityClass:
		if pod.Spec.PriorityClassName == "" {
			return named(s)
		}
		return named(s, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return affineAcrossNamespaces(pod), nil
	}
	return false, nil
}

// terminates reports whether a pod runs for a bounded time.
func terminates(pod *corev1.Pod) bool { return ptr.Deref(pod.Spec.ActiveDeadlineSeconds, -1) >= 0 }

func bestEffort(pod *corev1.Pod) bool { return podspec.QOSClassOf(pod) == corev1.PodQOSBestEffort }

// affineAcrossNamespaces reports whether the pod has an affinity term that selects
// pods of other namespaces (KEP-2249).
func affineAcrossNamespaces(pod *corev1.Pod) bool {
	a := pod.Spec.Affinity
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if a.PodAffinity != nil {
		terms = append(terms, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted = append(weighted, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if a.PodAntiAffinity != nil {
		terms = append(terms, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted = append(weighted, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for _, w := range weighted {
		terms = append(terms, w.PodAffinityTerm)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}

// podConstraints requires that every container has the requests or limits of cpu
// and memory that a quota limits, unless the pod has pod-level resources. Other
// resources are not required.
func podConstraints(required []corev1.ResourceName, item runtime.Object) error {
	pod, ok := item.(*corev1.Pod)
	if !ok {
		return kindError("pods", item)
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	demanded := library.Intersection(required, []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
		corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory,
	})
	var missing []string
	for _, name := range demanded {
		silent := sets.Set[string]{}
		for _, c := range podspec.NonEphemeral(&pod.Spec) {
			if _, says := compute(c.Resources.Requests, c.Resources.Limits)[name]; !says {
				silent.Insert(c.Name)
			}
		}
		if len(silent) > 0 {
			missing = append(missing, fmt.Sprintf("%s for: %s", name, strings.Join(sets.List(silent), ",")))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("must specify %s", strings.Join(missing, "; "))
	}
	return nil
}

func handlesPod(a admission.Attributes) bool {
	switch {
	case a.GetSubresource() == "resize":
		return a.GetOperation() == admission.Update
	case a.GetSubresource() != "":
		return false
	case a.GetOperation() == admission.Update:
		pod, isPod := a.GetObject().(*corev1.Pod)
		old, wasPod := a.GetOldObject().(*corev1.Pod)
		return isPod && wasPod && terminates(pod) != terminates(old)
	}
	return a.GetOperation() == admission.Create
}
