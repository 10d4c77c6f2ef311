package admit

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"svc.dev/svc/apis/podspec"
)

// Options are what admission depends on besides the Node object.
type Options struct {
	// Sysctls are the sysctls that pods may set, by default none.
	Sysctls *Sysctls
	// AppArmor reports whether the host supports AppArmor.
	AppArmor bool
	// WithoutSidecars refuses pods with init containers that are restarted.
	WithoutSidecars bool
	// Claims accepts pods with resource claims.
	Claims bool
	// Features are the features of nodes that the agent has, sorted (KEP-5328).
	Features []string
	// Pressure are the pressure conditions of the node, under which it admits fewer pods.
	Pressure []corev1.NodeConditionType
	// ShuttingDown refuses all pods, because the node shuts down.
	ShuttingDown bool
	// OS is the operating system for pods, by default this machine's.
	OS string
}

// Refusal is the reason and the message of a pod that is not admitted.
type Refusal struct {
	Reason, Message string
	// Shortages are what a critical pod lacks, if nothing else prevents its admission:
	// [Victims] selects pods to preempt.
	Shortages []Shortage
}

// Admit decides whether the node admits a pod in addition to its active pods; nil
// means that it does. others may include the pod itself.
//
// A pod can also be refused because the labels in node are outdated: before a
// caller acts on the reason NodeAffinity, it should read the Node again.
func Admit(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node, o Options) *Refusal {
	if node == nil {
		return &Refusal{Reason: "InvalidNodeInfo", Message: "Kubelet cannot get node info."}
	}
	if o.OS == "" {
		o.OS = goruntime.GOOS
	}
	others = without(others, pod)
	for _, check := range []func(candidate) *Refusal{
		notShuttingDown,
		noPressure,
		sysctlsAllowed,
		sidecarsAllowed,
		osLabelMatches,
		osMatches,
		supplementalGroupsPolicySupported,
		fits,
		appArmorEnabled,
		claimsSupported,
		featuresSupported,
	} {
		if refusal := check(candidate{pod: pod, others: others, node: node, options: o}); refusal != nil {
			return refusal
		}
	}
	return nil
}

// without returns the pods other than one.
func without(all []*corev1.Pod, pod *corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(all), func(other *corev1.Pod) bool { return other.UID == pod.UID })
}

// candidate is a pod to be admitted.
type candidate struct {
	pod     *corev1.Pod
	others  []*corev1.Pod
	node    *corev1.Node
	options Options
}

// started reports whether the pod has started: then it was admitted before.
func (c candidate) started() bool {
	return c.pod.Status.Phase != "" && c.pod.Status.Phase != corev1.PodPending
}

// notShuttingDown refuses pods while the node shuts down, as kubelet does.
func notShuttingDown(c candidate) *Refusal {
	if !c.options.ShuttingDown {
		return nil
	}
	return &Refusal{Reason: "NodeShutdown", Message: "Pod was rejected as the node is shutting down."}
}

func sysctlsAllowed(c candidate) *Refusal {
	if c.pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range c.pod.Spec.SecurityContext.Sysctls {
		if err := c.options.Sysctls.allow(s.Name, c.pod.Spec.HostNetwork, c.pod.Spec.HostIPC); err != nil {
			return &Refusal{Reason: "SysctlForbidden", Message: fmt.Sprintf("forbidden sysctl: %v", err)}
		}
	}
	return nil
}

func sidecarsAllowed(c candidate) *Refusal {
	if !c.options.WithoutSidecars {
		return nil
	}
	for i := range c.pod.Spec.InitContainers {
		if container := &c.pod.Spec.InitContainers[i]; container.RestartPolicy != nil {
			return &Refusal{
				Reason:  "InitContainerRestartPolicyForbidden",
				Message: fmt.Sprintf("Init container %q may not have a non-default restartPolicy: the feature gate SidecarContainers is off", container.Name),
			}
		}
	}
	return nil
}

// osLabelMatches checks the pod's own label, as kubelet does: node selectors are
// checked by the affinity check.
func osLabelMatches(c candidate) *Refusal {
	if label, set := c.pod.Labels[corev1.LabelOSStable]; !set || label == c.options.OS {
		return nil
	}
	return &Refusal{
		Reason:  "PodOSSelectorNodeLabelDoesNotMatch",
		Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
	}
}

func osMatches(c candidate) *Refusal {
	if c.pod.Spec.OS == nil || string(c.pod.Spec.OS.Name) == c.options.OS {
		return nil
	}
	return &Refusal{Reason: "PodOSNotSupported", Message: "Failed to admit pod as the OS field doesn't match node OS"}
}

func supplementalGroupsPolicySupported(c candidate) *Refusal {
	sc := c.pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != corev1.SupplementalGroupsPolicyStrict {
		return nil
	}
	if f := c.node.Status.Features; f != nil && f.SupplementalGroupsPolicy != nil && *f.SupplementalGroupsPolicy {
		return nil
	}
	return &Refusal{
		Reason:  "SupplementalGroupsPolicyNotSupported",
		Message: fmt.Sprintf("SupplementalGroupsPolicy=%s is not supported in this node", corev1.SupplementalGroupsPolicyStrict),
	}
}

// fits applies the scheduler's checks, because the pod may not have been scheduled
// by a scheduler. A critical pod is not refused for lack of resources alone; its
// shortages are returned.
func fits(c candidate) *Refusal {
	shortages := shortages(c.pod, c.others, c.node)
	predicate := failedPredicate(c)
	switch {
	case len(shortages) == 0 && predicate == nil:
		return nil
	case len(shortages) == 0 || predicate != nil && Critical(c.pod):
		return predicate
	}
	refusal := &Refusal{Reason: "OutOf" + string(shortages[0].Resource), Message: shortages[0].message()}
	if Critical(c.pod) {
		refusal.Shortages = shortages
	}
	return refusal
}

func failedPredicate(c candidate) *Refusal {
	failed := func(name, description string) *Refusal {
		return &Refusal{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, description)}
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(c.pod).Match(c.node); err != nil || !matches {
		return failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	}
	if c.pod.Spec.NodeName != "" && c.pod.Spec.NodeName != c.node.Name {
		return failed("NodeName", "node(s) didn't match the requested node name")
	}
	if portConflict(c.pod, c.others) {
		return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports")
	}
	if !Static(c.pod) && Untolerated(c.pod, c.node) != nil {
		return failed("TaintToleration", "node(s) had taints that the pod didn't tolerate")
	}
	return nil
}

func appArmorEnabled(c candidate) *Refusal {
	if c.options.AppArmor || c.started() || !wantsAppArmor(c.pod) {
		return nil
	}
	return &Refusal{Reason: "AppArmor", Message: "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
}

func wantsAppArmor(pod *corev1.Pod) bool {
	wants := func(profile *corev1.AppArmorProfile) bool {
		return profile != nil && profile.Type != corev1.AppArmorProfileTypeUnconfined
	}
	if sc := pod.Spec.SecurityContext; sc != nil && wants(sc.AppArmorProfile) {
		return true
	}
	for _, container := range podspec.NonEphemeral(&pod.Spec) {
		if sc := container.SecurityContext; sc != nil && wants(sc.AppArmorProfile) {
			return true
		}
		old, annotated := pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container.Name]
		if annotated && old != corev1.DeprecatedAppArmorBetaProfileNameUnconfined {
			return true
		}
	}
	return false
}

// claimsSupported refuses resource claims where the agent would ignore them silently.
func claimsSupported(c candidate) *Refusal {
	var name string
	switch claims, extended := c.pod.Spec.ResourceClaims, c.pod.Status.ExtendedResourceClaimStatus; {
	case c.options.Claims:
		return nil
	case len(claims) > 0:
		name = claims[0].Name
	case extended != nil:
		name = extended.ResourceClaimName
	default:
		return nil
	}
	return &Refusal{
		Reason:  "UnexpectedAdmissionError",
		Message: fmt.Sprintf("resource claim %q: the feature gate DynamicResourceAllocation is off on this node", name),
	}
}

// featuresSupported refuses pods that need a feature of nodes that the agent does not have,
// as kubelet 1.36 does.
func featuresSupported(c candidate) *Refusal {
	if c.started() {
		return nil
	}
	known := nodedeclaredfeatures.DefaultFramework
	refuse := func(format string, args ...any) *Refusal {
		return &Refusal{Reason: "PodFeatureUnsupported", Message: fmt.Sprintf(format, args...)}
	}
	needed, err := known.InferForPodScheduling(&nodedeclaredfeatures.PodInfo{Spec: &c.pod.Spec, Status: &c.pod.Status}, version.MajorMinor(1, 0))
	if err != nil {
		return refuse("Failed to infer pod's feature requirements: %v", err)
	}
	match, err := known.MatchNodeFeatureSet(needed, known.TryMap(c.options.Features))
	switch {
	case err != nil:
		return refuse("Failed to match pod's feature requirements against the node: %v", err)
	case !match.IsMatch:
		return refuse("Pod requires node features that are not available: %s", strings.Join(match.UnsatisfiedRequirements, ", "))
	}
	return nil
}
