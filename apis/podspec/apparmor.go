package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// FillAppArmorFields sets the AppArmor profile of containers that have only the
// deprecated annotation, unless the annotation is invalid or equal to the
// profile of the pod.
func FillAppArmorFields(p *corev1.Pod) {
	if p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return
	}
	for _, c := range All(&p.Spec) {
		annotation, ok := p.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		profile := appArmorProfileOf(annotation)
		if profile == nil || validateAppArmor(profile, nil) != nil || apiequality.Semantic.DeepEqual(profile, podAppArmor(&p.Spec)) {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	}
}

// KeepAppArmorFields copies the AppArmor profiles of containers from old where they are
// missing. It is for releases without the field, whose clients cannot send it: an earlier
// svc stored it at them, too.
func KeepAppArmorFields(spec, old *corev1.PodSpec) {
	for _, c := range All(spec) {
		_, was := Find(old, c.Name)
		if was == nil || was.SecurityContext == nil || was.SecurityContext.AppArmorProfile == nil {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		if c.SecurityContext.AppArmorProfile == nil {
			c.SecurityContext.AppArmorProfile = was.SecurityContext.AppArmorProfile.DeepCopy()
		}
	}
}

// podAppArmor returns the profile of containers that do not have their own.
func podAppArmor(spec *corev1.PodSpec) *corev1.AppArmorProfile {
	if spec.SecurityContext == nil {
		return nil
	}
	return spec.SecurityContext.AppArmorProfile
}

// appArmorProfileOf returns the profile that the annotation names; nil if it is
// invalid.
func appArmorProfileOf(annotation string) *corev1.AppArmorProfile {
	name, local := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case local && name != "":
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return nil
}
