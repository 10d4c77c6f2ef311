package rules

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// podOf returns the pod's spec that an object is or has a template of, and its path. It
// returns nil for other objects.
func podOf(obj runtime.Object) (*corev1.PodSpec, *field.Path) {
	spec := field.NewPath("spec")
	template := spec.Child("template", "spec")
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.Spec, spec
	case *corev1.PodTemplate:
		return &o.Template.Spec, field.NewPath("template", "spec")
	case *corev1.ReplicationController:
		if o.Spec.Template == nil {
			return nil, nil
		}
		return &o.Spec.Template.Spec, template
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec, template
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec, template
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec, template
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec, template
	case *batchv1.Job:
		return &o.Spec.Template.Spec, template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec, spec.Child("jobTemplate", "spec", "template", "spec")
	}
	return nil, nil
}

// eachContainer calls do for each container of a pod.
func eachContainer(obj runtime.Object, do func(c *corev1.Container, at *field.Path)) {
	spec, path := podOf(obj)
	if spec == nil {
		return
	}
	for i := range spec.InitContainers {
		do(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		do(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		do(&c, path.Child("ephemeralContainers").Index(i))
	}
}

// restartPolicies allows containers no restart policy of their own, and init containers
// Always alone.
func restartPolicies(obj runtime.Object) field.ErrorList {
	spec, path := podOf(obj)
	if spec == nil {
		return nil
	}
	var errs field.ErrorList
	for i := range spec.InitContainers {
		errs = append(errs, resource.OptionalOneOf(path.Child("initContainers").Index(i).Child("restartPolicy"),
			spec.InitContainers[i].RestartPolicy, corev1.ContainerRestartPolicyAlways)...)
	}
	for i := range spec.Containers {
		if spec.Containers[i].RestartPolicy != nil {
			errs = append(errs, field.Forbidden(path.Child("containers").Index(i).Child("restartPolicy"), "may not be set for non-init containers"))
		}
	}
	return errs
}

// containerResources are what variables and files of the downward API may name beside huge
// pages.
var containerResources = []string{
	"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory",
}

func hugePages(obj runtime.Object) field.ErrorList {
	var errs field.ErrorList
	check := func(ref *corev1.ResourceFieldSelector, at *field.Path) {
		if ref != nil && strings.Contains(ref.Resource, ".hugepages-") {
			errs = append(errs, field.NotSupported(at.Child("resourceFieldRef", "resource"), ref.Resource, containerResources))
		}
	}
	files := func(items []corev1.DownwardAPIVolumeFile, at *field.Path) {
		for i := range items {
			check(items[i].ResourceFieldRef, at.Child("items").Index(i))
		}
	}
	eachContainer(obj, func(c *corev1.Container, at *field.Path) {
		for i, v := range c.Env {
			if v.ValueFrom != nil {
				check(v.ValueFrom.ResourceFieldRef, at.Child("env").Index(i).Child("valueFrom"))
			}
		}
	})
	spec, path := podOf(obj)
	if spec == nil {
		return nil
	}
	for i, v := range spec.Volumes {
		at := path.Child("volumes").Index(i)
		if v.DownwardAPI != nil {
			files(v.DownwardAPI.Items, at.Child("downwardAPI"))
		}
		if v.Projected == nil {
			continue
		}
		for n, source := range v.Projected.Sources {
			if source.DownwardAPI != nil {
				files(source.DownwardAPI.Items, at.Child("projected", "sources").Index(n).Child("downwardAPI"))
			}
		}
	}
	return errs
}

// variableNames are letters, digits, _, - and dots.
func variableNames(obj runtime.Object) field.ErrorList {
	var errs field.ErrorList
	eachContainer(obj, func(c *corev1.Container, at *field.Path) {
		for i, v := range c.Env {
			if v.Name != "" {
				errs = append(errs, resource.Invalid(at.Child("env").Index(i).Child("name"), v.Name, validation.IsEnvVarName(v.Name))...)
			}
		}
		for i, source := range c.EnvFrom {
			if source.Prefix != "" {
				errs = append(errs, resource.Invalid(at.Child("envFrom").Index(i).Child("prefix"), source.Prefix, validation.IsEnvVarName(source.Prefix))...)
			}
		}
	})
	return errs
}

// searches are domains without underscores; the root is none.
func searches(obj runtime.Object) field.ErrorList {
	spec, path := podOf(obj)
	if spec == nil || spec.DNSConfig == nil {
		return nil
	}
	var errs field.ErrorList
	for i, search := range spec.DNSConfig.Searches {
		name := strings.TrimSuffix(search, ".")
		errs = append(errs, resource.Invalid(path.Child("dnsConfig", "searches").Index(i), name, validation.IsDNS1123Subdomain(name))...)
	}
	return errs
}

// comparisons are operators of tolerations for numbers.
func comparisons(obj runtime.Object) field.ErrorList {
	spec, path := podOf(obj)
	if spec == nil {
		return nil
	}
	var errs field.ErrorList
	for i, t := range spec.Tolerations {
		if t.Operator == corev1.TolerationOpGt || t.Operator == corev1.TolerationOpLt {
			errs = append(errs, field.NotSupported(path.Child("tolerations").Index(i).Child("operator"), t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
	}
	return errs
}

// resourcesOfInit are those of init containers other than sidecars, which do not change in place.
func resourcesOfInit(obj, old runtime.Object) field.ErrorList {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	was := old.(*corev1.Pod).Spec.InitContainers
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if i < len(was) && !podspec.IsSidecar(podspec.InitContainers, c) && !apiequality.Semantic.DeepEqual(c, &was[i]) {
			return field.ErrorList{field.Forbidden(spec, "resources for non-sidecar init containers are immutable")}
		}
	}
	return nil
}

// resourcesOfPod are those of the pod level, with which a pod is not resized.
func resourcesOfPod(obj, old runtime.Object) field.ErrorList {
	pod, ok := obj.(*corev1.Pod)
	if !ok || !hasResources(pod) && !hasResources(old.(*corev1.Pod)) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath(""),
		"resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled")}
}

// hasResources reports whether a pod has resources of the pod level.
func hasResources(pod *corev1.Pod) bool {
	return pod.Spec.Resources != nil && len(pod.Spec.Resources.Requests)+len(pod.Spec.Resources.Limits) > 0
}

// podResources completes the resources of the pod level when a pod is decoded.
func podResources(obj runtime.Object) { core.DefaultPodResources(obj.(*corev1.Pod)) }

// spreadKeys are matchLabelKeys of topology spread constraints that the selector has, too.
func spreadKeys(obj runtime.Object) field.ErrorList {
	spec, path := podOf(obj)
	if spec == nil {
		return nil
	}
	var errs field.ErrorList
	for i, c := range spec.TopologySpreadConstraints {
		if c.LabelSelector == nil {
			continue
		}
		for n, key := range c.MatchLabelKeys {
			_, found := c.LabelSelector.MatchLabels[key]
			if found || slices.ContainsFunc(c.LabelSelector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == key }) {
				errs = append(errs, field.Invalid(path.Child("topologySpreadConstraints").Index(i).Child("matchLabelKeys").Index(n), key, "exists in both matchLabelKeys and labelSelector"))
			}
		}
	}
	return errs
}
