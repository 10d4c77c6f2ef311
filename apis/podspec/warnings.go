package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// WarnPod returns the warnings for a new pod. Updates, which mostly controllers
// and nodes send, get none.
func WarnPod(p, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	var warnings []string
	if msgs := validation.IsDNS1123Label(p.Name); len(msgs) > 0 {
		warnings = append(warnings, fmt.Sprintf("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: %v", msgs))
	}
	return append(warnings, warnPodSpec(&p.Spec, p.Annotations, nil)...)
}

// WarnTemplate returns the warnings for a template; path is the template's.
func WarnTemplate(t *corev1.PodTemplateSpec, path *field.Path) []string {
	if t == nil {
		return nil
	}
	return warnPodSpec(&t.Spec, t.Annotations, path)
}

// podSpecWarnings are given the spec, the annotations beside it, and the path
// of the object that has both.
var podSpecWarnings = []func(spec *corev1.PodSpec, annotations map[string]string, path *field.Path) []string{
	warnDeprecatedNodeLabels,
	warnImpossibleNodeLabels,
	warnSelectingNothing,
	warnObsoleteAnnotations,
	warnDeprecatedVolumes,
	warnOverlappingFiles,
	warnRepeatedReferences,
	warnFractionalBytes,
	warnHiddenVariables,
	warnCollidingPorts,
	warnNegativeGracePeriod,
	warnNonCanonicalAddresses,
}

func warnPodSpec(spec *corev1.PodSpec, annotations map[string]string, path *field.Path) []string {
	var warnings []string
	for _, warn := range podSpecWarnings {
		warnings = append(warnings, warn(spec, annotations, path)...)
	}
	return warnings
}

// warning formats a warning about a field.
func warning(path *field.Path, format string, args ...any) string {
	return path.String() + ": " + fmt.Sprintf(format, args...)
}

// warnImpossibleNodeLabels warns of preferred node affinity with values that are
// invalid for labels. Required node affinity is validated.
func warnImpossibleNodeLabels(spec *corev1.PodSpec, _ map[string]string, path *field.Path) []string {
	a := NodeAffinity(spec)
	if a == nil {
		return nil
	}
	var warnings []string
	path = path.Child("spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
	for i, term := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		for j, e := range term.Preference.MatchExpressions {
			for k, value := range e.Values {
				for _, msg := range validation.IsValidLabelValue(value) {
					warnings = append(warnings, warning(path.Index(i).Child("preference", "matchExpressions").Index(j).Child("values").Index(k), "%s is invalid, %s", value, msg))
				}
			}
		}
	}
	return warnings
}

func warnSelectingNothing(spec *corev1.PodSpec, _ map[string]string, path *field.Path) []string {
	var warnings []string
	check := func(selector *metav1.LabelSelector, path *field.Path) {
		if selector == nil {
			warnings = append(warnings, warning(path.Child("labelSelector"), "a null labelSelector results in matching no pod"))
		}
	}
	for i, c := range spec.TopologySpreadConstraints {
		check(c.LabelSelector, path.Child("spec", "topologySpreadConstraints").Index(i))
	}
	terms := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, path *field.Path) {
		for i, t := range required {
			check(t.LabelSelector, path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))
		}
		for i, t := range preferred {
			check(t.PodAffinityTerm.LabelSelector, path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm"))
		}
	}
	if spec.Affinity != nil {
		path := path.Child("spec", "affinity")
		if a := spec.Affinity.PodAffinity; a != nil {
			terms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))
		}
		if a := spec.Affinity.PodAntiAffinity; a != nil {
			terms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))
		}
	}
	return warnings
}

// obsoleteAnnotations are annotations that no longer configure pods.
var obsoleteAnnotations = map[string]string{
	"scheduler.alpha.kubernetes.io/critical-pod":  `non-functional in v1.16+; use the "priorityClassName" field instead`,
	"security.alpha.kubernetes.io/sysctls":        `non-functional in v1.11+; use the "sysctls" field instead`,
	"security.alpha.kubernetes.io/unsafe-sysctls": `non-functional in v1.11+; use the "sysctls" field instead`,
}

func warnObsoleteAnnotations(spec *corev1.PodSpec, annotations map[string]string, path *field.Path) []string {
	path = path.Child("metadata", "annotations")
	dead := maps.Clone(obsoleteAnnotations)
	const seccomp = `non-functional in v1.27+; use the "seccompProfile" field instead`
	if spec.SecurityContext == nil || spec.SecurityContext.SeccompProfile == nil {
		dead[corev1.SeccompPodAnnotationKey] = seccomp
	}
	for _, c := range All(spec) {
		if c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil {
			dead[corev1.SeccompContainerAnnotationKeyPrefix+c.Name] = seccomp
		}
		key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
		adopted := c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil
		if profile := appArmorProfileOf(annotations[key]); !adopted && (profile == nil || !apiequality.Semantic.DeepEqual(profile, podAppArmor(spec))) {
			dead[key] = `deprecated since v1.30; use the "appArmorProfile" field instead`
		}
	}
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if msg := dead[key]; msg != "" {
			warnings = append(warnings, warning(path.Key(key), "%s", msg))
		}
	}
	return warnings
}

func warnDeprecatedVolumes(spec *corev1.PodSpec, _ map[string]string, path *field.Path) []string {
	var warnings []string
	for i := range spec.Volumes {
		v, path := &spec.Volumes[i], path.Child("spec", "volumes").Index(i)
		for _, dead := range []struct {
			field string
			used  bool
			msg   string
		}{
			{"photonPersistentDisk", v.PhotonPersistentDisk != nil, "deprecated in v1.11, non-functional in v1.16+"},
			{"gitRepo", v.GitRepo != nil, "deprecated in v1.11, and disabled by default in v1.33+"},
			{"scaleIO", v.ScaleIO != nil, "deprecated in v1.16, non-functional in v1.22+"},
			{"flocker", v.Flocker != nil, "deprecated in v1.22, non-functional in v1.25+"},
			{"storageos", v.StorageOS != nil, "deprecated in v1.22, non-functional in v1.25+"},
			{"quobyte", v.Quobyte != nil, "deprecated in v1.22, non-functional in v1.25+"},
			{"glusterfs", v.Glusterfs != nil, "deprecated in v1.25, non-functional in v1.26+"},
			{"cephfs", v.CephFS != nil, "deprecated in v1.28, non-functional in v1.31+"},
			{"rbd", v.RBD != nil, "deprecated in v1.28, non-functional in v1.31+"},
		} {
			if dead.used {
				warnings = append(warnings, warning(path.Child(dead.field), "%s", dead.msg))
			}
		}
	}
	return warnings
}

// warnRepeatedReferences warns of duplicate references, of which one counts.
func warnRepeatedReferences(spec *corev1.PodSpec, _ map[string]string, path *field.Path) []string {
	var warnings []string
	ips, secrets := map[string]bool{}, map[string]bool{}
	for i, alias := range spec.HostAliases {
		if ips[alias.IP] {
			warnings = append(warnings, warning(path.Child("spec", "hostAliases").Index(i).Child("ip"), "duplicate ip %q", alias.IP))
		}
		ips[alias.IP] = true
	}
	for i, secret := range spec.ImagePullSecrets {
		path := path.Child("spec", "imagePullSecrets").Index(i).Child("name")
		if secrets[secret.Name] {
			warnings = append(warnings, warning(path, "duplicate name %q", secret.Name))
		}
		if secret.Name == "" {
			warnings = append(warnings, warning(path, "invalid empty name %q", secret.Name))
		}
		secrets[secret.Name] = true
	}
	return warnings
}

func warnFractionalBytes(spec *corev1.PodSpec, _ map[string]string, path *field.Path) []string {
	var warnings []string
	check := func(list corev1.ResourceList, path *field.Path) {
		for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage} {
			if amount, ok := list[name]; ok && amount.MilliValue()%1000 != 0 {
				warnings = append(warnings, warning(path.Key(string(name)), "fractional byte value %q is invalid, must be an integer", amount.String()))
			}
		}
	}
	check(spec.Overhead, path.Child("spec", "overhead"))
	for at, c := range All(spec) {
		path := at.Path(path.Child("spec")).Child("resources")
		check(c.Resources.Limits, path.Child("limits"))
		check(c.Resources.Requests, path.Child("requests"))
	}
	for i, v := range spec.Volumes {
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		path := path.Child("spec", "volumes").Index(i).Child("ephemeral", "volumeClaimTemplate", "spec", "resources")
		check(v.Ephemeral.VolumeClaimTemplate.Spec.Resources.Limits, path.Child("limits"))
		check(v.Ephemeral.VolumeClaimTemplate.Spec.Resources.Requests, path.Child("requests"))
	}
	return warnings
}

// warnHiddenVariables warns of a variable that a later one of the same name hides,
// unless the later one refers to it.
func warnHiddenVariables(spec *corev1.PodSpec, _ map[string]string, path *field.Path) []string {
	var warnings []string
	for at, c := range All(spec) {
		seen := map[string]bool{}
		for i, v := range c.Env {
			self := "$(" + v.Name + ")"
			if seen[v.Name] && (v.ValueFrom != nil || v.Value == self || !strings.Contains(v.Value, self)) {
				warnings = append(warnings, warning(at.Path(path.Child("spec")).Child("env").Index(i),
					"hides previous definition of %q, which may be dropped when using apply", v.Name))
			}
			seen[v.Name] = true
		}
	}
	return warnings
}

func warnCollidingPorts(spec *corev1.PodSpec, _ map[string]string, path *field.Path) []string {
	type placed struct {
		corev1.ContainerPort
		path *field.Path
	}
	var warnings []string
	byNumber, byName := map[string][]placed{}, map[string]*field.Path{}
	for at, c := range All(spec) {
		for i, port := range c.Ports {
			path := at.Path(path.Child("spec")).Child("ports").Index(i)
			if port.HostIP != "" && port.HostPort == 0 {
				warnings = append(warnings, warning(path, "hostIP set without hostPort: %+v", port))
			}
			number := fmt.Sprintf("%d/%s", port.ContainerPort, port.Protocol)
			for _, other := range byNumber[number] {
				switch {
				case port.HostIP == other.HostIP && port.HostPort == other.HostPort:
					warnings = append(warnings, warning(path, "duplicate port definition with %s", other.path))
				case port.HostPort == 0 || other.HostPort == 0:
					warnings = append(warnings, warning(path, "overlapping port definition with %s", other.path))
				case port.HostPort == other.HostPort && (port.HostIP == "") != (other.HostIP == ""):
					warnings = append(warnings, warning(path, "dangerously ambiguous port definition with %s", other.path))
				}
			}
			byNumber[number] = append(byNumber[number], placed{port, path})
			if other := byName[port.Name]; port.Name != "" && other != nil {
				warnings = append(warnings, warning(path, "duplicate port name %q with %s, services and probes that select ports by name will use %s", port.Name, other, other))
			} else {
				byName[port.Name] = path
			}
		}
	}
	return warnings
}

func warnNegativeGracePeriod(spec *corev1.PodSpec, _ map[string]string, path *field.Path) []string {
	if period := spec.TerminationGracePeriodSeconds; period != nil && *period < 0 {
		return []string{warning(path.Child("spec", "terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")}
	}
	return nil
}

func warnNonCanonicalAddresses(spec *corev1.PodSpec, _ map[string]string, path *field.Path) []string {
	var warnings []string
	if spec.DNSConfig != nil {
		for i, server := range spec.DNSConfig.Nameservers {
			warnings = append(warnings, validation.GetWarningsForIP(path.Child("spec", "dnsConfig", "nameservers").Index(i), server)...)
		}
	}
	for i, alias := range spec.HostAliases {
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("spec", "hostAliases").Index(i).Child("ip"), alias.IP)...)
	}
	return warnings
}

// NodeAffinity returns the node affinity of the PodSpec; nil if it has none.
func NodeAffinity(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity
}
