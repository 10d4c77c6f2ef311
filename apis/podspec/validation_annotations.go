package podspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// IsMirror reports whether the pod is a mirror pod: the API object of a static
// pod.
func IsMirror(annotations map[string]string) bool {
	_, ok := annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// ValidateAnnotations validates the annotations that configure pods.
func ValidateAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if IsMirror(annotations) && spec.NodeName == "" {
		errs = append(errs, field.Invalid(path.Key(corev1.MirrorPodAnnotationKey), annotations[corev1.MirrorPodAnnotationKey],
			"must set spec.nodeName if mirror pod annotation is set"))
	}
	if value := annotations[corev1.TolerationsAnnotationKey]; value != "" {
		var tolerations []corev1.Toleration
		if err := json.Unmarshal([]byte(value), &tolerations); err != nil {
			errs = append(errs, field.Invalid(path, corev1.TolerationsAnnotationKey, err.Error()))
		}
		errs = append(errs, ValidateTolerations(tolerations, path.Child(corev1.TolerationsAnnotationKey))...)
	}
	if cost, ok := annotations[corev1.PodDeletionCost]; ok && !isDeletionCost(cost) {
		errs = append(errs, field.Invalid(path.Key(corev1.PodDeletionCost), cost, "must be a 32bit integer"))
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		value := annotations[key]
		if key == corev1.SeccompPodAnnotationKey || strings.HasPrefix(key, corev1.SeccompContainerAnnotationKeyPrefix) {
			errs = append(errs, validateSeccompAnnotation(value, path.Child(key))...)
		}
		if name, ok := strings.CutPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix); ok {
			errs = append(errs, validateAppArmorAnnotation(name, value, spec, path.Key(key))...)
		}
	}
	return errs
}

// isDeletionCost reports whether the cost is an integer without a plus sign or
// leading zeros.
func isDeletionCost(cost string) bool {
	n, err := strconv.ParseInt(cost, 10, 32)
	return err == nil && strconv.FormatInt(n, 10) == cost
}

func validateSeccompAnnotation(profile string, path *field.Path) field.ErrorList {
	switch profile {
	case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault, corev1.SeccompProfileNameUnconfined:
		return nil
	}
	if file, ok := strings.CutPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix); ok {
		return descends(file, path)
	}
	return field.ErrorList{field.Invalid(path, profile, "must be a valid seccomp profile")}
}

func validateAppArmorAnnotation(container, profile string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, c := Find(spec, container); c == nil {
		errs = append(errs, field.Invalid(path, container, "container not found"))
	}
	switch profile {
	case "", corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
	default:
		if !strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix) {
			errs = append(errs, field.Invalid(path, profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile)))
		}
	}
	return errs
}

// ValidateProfileAnnotations requires that a profile that is given both by its
// field and by the annotation that preceded the field is the same in both.
func ValidateProfileAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var seccomp *corev1.SeccompProfile
	var appArmor *corev1.AppArmorProfile
	if spec.SecurityContext != nil {
		seccomp, appArmor = spec.SecurityContext.SeccompProfile, spec.SecurityContext.AppArmorProfile
	}
	if annotation, ok := annotations[corev1.SeccompPodAnnotationKey]; ok && seccomp != nil {
		errs = append(errs, seccompMatches(annotation, seccomp, path.Child("securityContext", "seccompProfile"))...)
	}
	for at, c := range All(spec) {
		profile := appArmor
		if sc := c.SecurityContext; sc != nil {
			path := at.Path(path).Child("securityContext")
			if annotation, ok := annotations[corev1.SeccompContainerAnnotationKeyPrefix+c.Name]; ok && sc.SeccompProfile != nil {
				errs = append(errs, seccompMatches(annotation, sc.SeccompProfile, path.Child("seccompProfile"))...)
			}
			if sc.AppArmorProfile != nil {
				profile = sc.AppArmorProfile
			}
		}
		annotation, ok := annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
		if ok && profile != nil && (spec.OS == nil || spec.OS.Name != corev1.Windows) {
			errs = append(errs, appArmorMatches(annotation, profile, at.Path(path).Child("securityContext", "appArmorProfile"))...)
		}
	}
	return errs
}

func seccompMatches(annotation string, p *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	file, local := strings.CutPrefix(annotation, corev1.SeccompLocalhostProfileNamePrefix)
	matches := true
	switch p.Type {
	case corev1.SeccompProfileTypeUnconfined:
		matches = annotation == corev1.SeccompProfileNameUnconfined
	case corev1.SeccompProfileTypeRuntimeDefault:
		matches = annotation == corev1.SeccompProfileRuntimeDefault || annotation == corev1.DeprecatedSeccompProfileDockerDefault
	case corev1.SeccompProfileTypeLocalhost:
		matches = local
		if local && (p.LocalhostProfile == nil || *p.LocalhostProfile != file) {
			return field.ErrorList{field.Forbidden(path.Child("localhostProfile"), "seccomp profile in annotation and field must match")}
		}
	}
	if !matches {
		return field.ErrorList{field.Forbidden(path.Child("type"), "seccomp type in annotation and field must match")}
	}
	return nil
}

func appArmorMatches(annotation string, p *corev1.AppArmorProfile, path *field.Path) field.ErrorList {
	name, local := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	matches := true
	switch p.Type {
	case corev1.AppArmorProfileTypeUnconfined:
		matches = annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	case corev1.AppArmorProfileTypeRuntimeDefault:
		matches = annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case corev1.AppArmorProfileTypeLocalhost:
		matches = local
		if local && (p.LocalhostProfile == nil || *p.LocalhostProfile != name) {
			return field.ErrorList{field.Forbidden(path.Child("localhostProfile"), "apparmor profile in annotation and field must match")}
		}
	}
	if !matches {
		return field.ErrorList{field.Forbidden(path.Child("type"), "apparmor type in annotation and field must match")}
	}
	return nil
}
