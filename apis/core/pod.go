package core

import (
	"context"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var pods = resource.Type[*corev1.Pod]{
	Name: "pods", ShortNames: []string{"po"}, Categories: []string{"all"}, Namespaced: true,
	Default:        defaultPod,
	PrepareCreate:  preparePod,
	PrepareUpdate:  preparePodUpdate,
	Validate:       validatePod,
	ValidateCreate: validateNewPod,
	ValidateUpdate: validatePodUpdate,
	Restrict: func(env *resource.Env, p *corev1.Pod) field.ErrorList {
		return podspec.Restrict(env, &p.Spec, field.NewPath("spec"))
	},
	Warn:           podspec.WarnPod,
	Status:         true,
	PrepareStatus:  preparePodStatus,
	ValidateStatus: validatePodStatus,
	Generation:     true,
	GracePeriod:    podGracePeriod,
	Views:          []resource.View[*corev1.Pod]{ephemeralContainers, resize},
	Actions:        []resource.Action{binding, eviction},
	Connects:       podConnects,
	Columns:        podColumns,
	WatchField:     "spec.nodeName",
	Fields: map[string]func(*corev1.Pod) string{
		"spec.hostNetwork":         func(p *corev1.Pod) string { return strconv.FormatBool(p.Spec.HostNetwork) },
		"spec.nodeName":            func(p *corev1.Pod) string { return p.Spec.NodeName },
		"spec.restartPolicy":       func(p *corev1.Pod) string { return string(p.Spec.RestartPolicy) },
		"spec.schedulerName":       func(p *corev1.Pod) string { return p.Spec.SchedulerName },
		"spec.serviceAccountName":  func(p *corev1.Pod) string { return p.Spec.ServiceAccountName },
		"status.nominatedNodeName": func(p *corev1.Pod) string { return p.Status.NominatedNodeName },
		"status.phase":             func(p *corev1.Pod) string { return string(p.Status.Phase) },
		"status.podIP":             func(p *corev1.Pod) string { return p.Status.PodIP },
		"status.podIPs":            podIPs,
	},
}

// podIPs returns the pod's addresses, separated by commas.
func podIPs(p *corev1.Pod) string {
	ips := make([]string, len(p.Status.PodIPs))
	for i, ip := range p.Status.PodIPs {
		ips[i] = ip.IP
	}
	return strings.Join(ips, ",")
}

// preparePod sets the status of a new pod: it is pending and has its QoS class,
// which is immutable.
func preparePod(_ context.Context, env *resource.Env, p *corev1.Pod) {
	// Admission may have set the service account after defaulting.
	p.Spec.DeprecatedServiceAccount = p.Spec.ServiceAccountName
	if env.PodResources {
		completePodResources(p)
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: podspec.QOSClass(&p.Spec)}
	if len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates",
			LastTransitionTime: metav1.NewTime(env.Clock.Now()),
		}}
	}
	selectByOwnLabels(p, env.SpreadSelectors)
	if env.AppArmorFields {
		podspec.FillAppArmorFields(p)
	}
}

// preparePodUpdate keeps what a client that does not know newer fields leaves out.
func preparePodUpdate(_ context.Context, env *resource.Env, p, old *corev1.Pod) {
	if env.PodResources {
		keepPodResources(p, old)
	}
	if !env.AppArmorFields {
		podspec.KeepAppArmorFields(&p.Spec, &old.Spec)
	}
}

// selectByOwnLabels adds to the selectors of affinity terms and, with spread, topology
// spread constraints the requirements for matchLabelKeys and mismatchLabelKeys, with the
// values of the pod's labels (KEP-3243, KEP-3633).
func selectByOwnLabels(p *corev1.Pod, spread bool) {
	extend := func(selector *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		for _, key := range keys {
			if value, ok := p.Labels[key]; ok && selector != nil {
				selector.MatchExpressions = append(selector.MatchExpressions,
					metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
			}
		}
	}
	for _, term := range podAffinityTerms(p.Spec.Affinity) {
		extend(term.LabelSelector, term.MatchLabelKeys, metav1.LabelSelectorOpIn)
		extend(term.LabelSelector, term.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
	}
	if !spread {
		return
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		extend(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// podAffinityTerms returns the terms of pod affinity and anti-affinity.
func podAffinityTerms(a *corev1.Affinity) []*corev1.PodAffinityTerm {
	if a == nil {
		return nil
	}
	var terms []*corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			terms = append(terms, &required[i])
		}
		for i := range preferred {
			terms = append(terms, &preferred[i].PodAffinityTerm)
		}
	}
	if a.PodAffinity != nil {
		add(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a.PodAntiAffinity != nil {
		add(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return terms
}

func validatePod(p *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	errs := podspec.ValidateAnnotations(p.Annotations, &p.Spec, field.NewPath("metadata", "annotations"))
	errs = append(errs, podspec.Validate(&p.Spec, &p.ObjectMeta, spec)...)
	if p.Spec.ServiceAccountName == "" {
		errs = append(errs, mayNotProjectTokens(&p.Spec, spec.Child("volumes"))...)
	}
	for at, c := range podspec.All(&p.Spec) {
		// podspec.Validate checks ephemeral containers.
		if at.List != podspec.EphemeralContainers {
			errs = append(errs, podspec.ValidateImageTrimmed(c, at.Path(spec))...)
		}
	}
	return errs
}

func mayNotProjectTokens(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range spec.Volumes {
		projected := spec.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for j := range projected.Sources {
			if projected.Sources[j].ServiceAccountToken != nil {
				errs = append(errs, field.Forbidden(path.Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken"),
					"must not be specified when serviceAccountName is not set"))
			}
		}
	}
	return errs
}

// validateNewPod has the rules for new pods only.
func validateNewPod(p *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if len(p.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if p.Spec.NodeName != "" && len(p.Spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return append(errs, podspec.ValidateProfileAnnotations(p.Annotations, &p.Spec, spec)...)
}

// setPodCondition adds the condition to the pod or replaces the one of its
// type. The time of transition changes only if the status does.
func setPodCondition(p *corev1.Pod, c corev1.PodCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now)
	old := podspec.Condition(&p.Status, c.Type)
	if old == nil {
		p.Status.Conditions = append(p.Status.Conditions, c)
		return
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	c.LastProbeTime, c.ObservedGeneration = old.LastProbeTime, old.ObservedGeneration
	*old = c
}
