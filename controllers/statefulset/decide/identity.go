package decide

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/pods"
)

// revisionLabel is the label of a pod that names its revision.
const revisionLabel = appsv1.ControllerRevisionHashLabelKey

// Ordinal returns the ordinal of a pod of the set by its name, and whether the name
// has one.
func Ordinal(set *appsv1.StatefulSet, pod string) (int, bool) {
	digits, ok := strings.CutPrefix(pod, set.Name+"-")
	if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	// A name with leading zeros is not the name of that ordinal's pod.
	return int(n), err == nil && podName(set, int(n)) == pod
}

func podName(set *appsv1.StatefulSet, ordinal int) string {
	return set.Name + "-" + strconv.Itoa(ordinal)
}

// ordinals returns the first ordinal of the set and the one after the last.
func ordinals(set *appsv1.StatefulSet) (begin, end int) {
	if set.Spec.Ordinals != nil {
		begin = int(set.Spec.Ordinals.Start)
	}
	return begin, begin + int(ptr.Deref(set.Spec.Replicas, 1))
}

// ClaimName returns the name of the claim of an ordinal's pod.
func ClaimName(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, ordinal int) string {
	return fmt.Sprintf("%s-%s-%d", template.Name, set.Name, ordinal)
}

// newPod returns the pod of an ordinal in a revision.
func (s *State) newPod(ordinal int, r Revision) *corev1.Pod {
	pod := pods.FromTemplate(s.Set, s.Kind, r.Template)
	pod.Name = podName(s.Set, ordinal)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, identity(pod.Name, ordinal))
	pod.Labels[revisionLabel] = r.Name
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, s.Set.Spec.ServiceName
	templates := s.Set.Spec.VolumeClaimTemplates
	pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return slices.ContainsFunc(templates, func(t corev1.PersistentVolumeClaim) bool { return t.Name == v.Name })
	})
	for i := range templates {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: templates[i].Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ClaimName(s.Set, &templates[i], ordinal)},
		}})
	}
	return pod
}

// identity returns the labels by which a pod of the set is found.
func identity(name string, ordinal int) map[string]string {
	return map[string]string{appsv1.StatefulSetPodNameLabel: name, appsv1.PodIndexLabel: strconv.Itoa(ordinal)}
}

// missingClaims returns the claims of an ordinal's pod that do not exist.
func (s *State) missingClaims(ordinal int) []*corev1.PersistentVolumeClaim {
	var missing []*corev1.PersistentVolumeClaim
	for i := range s.Set.Spec.VolumeClaimTemplates {
		template := &s.Set.Spec.VolumeClaimTemplates[i]
		name := ClaimName(s.Set, template, ordinal)
		if s.Claims[name] != nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.Set.Namespace, Name: name,
				Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations), Finalizers: slices.Clone(template.Finalizers),
			},
			Spec: *template.Spec.DeepCopy(),
		}
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		maps.Copy(claim.Labels, s.Set.Spec.Selector.MatchLabels)
		if s.deletesClaims().WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType {
			claim.OwnerReferences = []metav1.OwnerReference{s.setReference()}
		}
		missing = append(missing, claim)
	}
	return missing
}

// ClaimNames returns the names of the claims of all ordinals that the set has or its
// pods have.
func ClaimNames(s *State) []string {
	if len(s.Set.Spec.VolumeClaimTemplates) == 0 {
		return nil
	}
	begin, end := ordinals(s.Set)
	var all []int
	for ordinal := begin; ordinal < end; ordinal++ {
		all = append(all, ordinal)
	}
	for _, pod := range s.Pods {
		if ordinal, ok := Ordinal(s.Set, pod.Name); ok && (ordinal < begin || ordinal >= end) {
			all = append(all, ordinal)
		}
	}
	var names []string
	for i := range s.Set.Spec.VolumeClaimTemplates {
		for _, ordinal := range all {
			names = append(names, ClaimName(s.Set, &s.Set.Spec.VolumeClaimTemplates[i], ordinal))
		}
	}
	return names
}
