package limitranger

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// annotation of a pod lists the requests and limits that the plugin has set.
const annotation = "kubernetes.io/limit-ranger"

// setDefaults sets the requests and limits that the containers of a pod leave out,
// and lists them in the annotation.
func setDefaults(limitRange *corev1.LimitRange, pod *corev1.Pod) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for _, limit := range limitRange.Spec.Limits {
		if limit.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, limit.DefaultRequest)
			maps.Copy(limits, limit.Default)
		}
	}
	var set []string
	add := func(what string, containers []corev1.Container) {
		for i := range containers {
			c := &containers[i]
			if names := fill(&c.Resources.Requests, requests); names != "" {
				set = append(set, fmt.Sprintf("%s request for %s %s", names, what, c.Name))
			}
			if names := fill(&c.Resources.Limits, limits); names != "" {
				set = append(set, fmt.Sprintf("%s limit for %s %s", names, what, c.Name))
			}
		}
	}
	add("container", pod.Spec.Containers)
	add("init container", pod.Spec.InitContainers)
	if len(set) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotation] = "LimitRanger plugin set: " + strings.Join(set, "; ")
}

// fill sets the resources that a list leaves out, and returns their sorted names.
func fill(list *corev1.ResourceList, defaults corev1.ResourceList) string {
	var set []string
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if _, given := (*list)[name]; given {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = defaults[name].DeepCopy()
		set = append(set, string(name))
	}
	return strings.Join(set, ", ")
}
