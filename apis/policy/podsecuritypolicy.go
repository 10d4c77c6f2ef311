package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta1 "svc.dev/svc/apis/removed/policy/v1beta1"
	"svc.dev/svc/apis/resource"
)

// podSecurityPolicies are stored and validated; the admission controller that applied
// them was removed with them, and nothing replaces either (document 2, section 9).
var podSecurityPolicies = resource.Type[*policyv1beta1.PodSecurityPolicy]{
	Name: "podsecuritypolicies", ShortNames: []string{"psp"},
	Default: func(p *policyv1beta1.PodSecurityPolicy) {
		resource.Fill(&p.Spec.AllowPrivilegeEscalation, true)
	},
	Validate: validatePodSecurityPolicy,
	Columns: []resource.Column[*policyv1beta1.PodSecurityPolicy]{
		resource.Name[*policyv1beta1.PodSecurityPolicy](),
		policyColumn("Priv", "Whether containers may be privileged.", func(s *policyv1beta1.PodSecurityPolicySpec) any { return s.Privileged }),
		policyColumn("Caps", "The capabilities that containers may add.", func(s *policyv1beta1.PodSecurityPolicySpec) any { return s.AllowedCapabilities }),
		policyColumn("SELinux", "How labels are allowed.", func(s *policyv1beta1.PodSecurityPolicySpec) any { return s.SELinux.Rule }),
		policyColumn("RunAsUser", "How users are allowed.", func(s *policyv1beta1.PodSecurityPolicySpec) any { return s.RunAsUser.Rule }),
		policyColumn("FsGroup", "How groups of volumes are allowed.", func(s *policyv1beta1.PodSecurityPolicySpec) any { return s.FSGroup.Rule }),
		policyColumn("SupGroup", "How supplemental groups are allowed.", func(s *policyv1beta1.PodSecurityPolicySpec) any { return s.SupplementalGroups.Rule }),
		policyColumn("ReadOnlyRootFs", "Whether containers must have a read-only root file system.",
			func(s *policyv1beta1.PodSecurityPolicySpec) any { return s.ReadOnlyRootFilesystem }),
		policyColumn("Volumes", "The kinds of volumes that pods may have.", func(s *policyv1beta1.PodSecurityPolicySpec) any { return joined(s.Volumes) }),
	},
}

func policyColumn(name, description string, value func(*policyv1beta1.PodSecurityPolicySpec) any) resource.Column[*policyv1beta1.PodSecurityPolicy] {
	return resource.Column[*policyv1beta1.PodSecurityPolicy]{
		Name: name, Description: description,
		Value: func(p *policyv1beta1.PodSecurityPolicy) any { return fmt.Sprint(value(&p.Spec)) },
	}
}

func joined(volumes []policyv1beta1.FSType) string {
	names := make([]string, 0, len(volumes))
	for _, v := range volumes {
		names = append(names, string(v))
	}
	return strings.Join(names, ",")
}

const (
	mustRunAs        = "MustRunAs"
	mustRunAsNonRoot = "MustRunAsNonRoot"
	mayRunAs         = "MayRunAs"
	runAsAny         = "RunAsAny"
	everything       = "*"
)

func validatePodSecurityPolicy(p *policyv1beta1.PodSecurityPolicy) field.ErrorList {
	spec, path := &p.Spec, field.NewPath("spec")
	errs := validateStrategies(path, spec)
	for i, v := range spec.Volumes {
		errs = append(errs, resource.OneOf(path.Child("volumes").Index(i), v, volumeKinds()...)...)
	}
	errs = append(errs, validateCapabilities(path, spec)...)
	if !*spec.AllowPrivilegeEscalation && spec.DefaultAllowPrivilegeEscalation != nil && *spec.DefaultAllowPrivilegeEscalation {
		errs = append(errs, field.Invalid(path.Child("defaultAllowPrivilegeEscalation"), true, "Cannot set DefaultAllowPrivilegeEscalation to true without also setting AllowPrivilegeEscalation to true"))
	}
	for i, m := range spec.AllowedProcMountTypes {
		errs = append(errs, resource.OneOf(path.Child("allowedProcMountTypes").Index(i), m, corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
	}
	errs = append(errs, validateSysctls(path, spec)...)
	errs = append(errs, validateSources(path, spec)...)
	if r := spec.RuntimeClass; r != nil {
		errs = append(errs, validateRuntimeClasses(path.Child("runtimeClass"), r)...)
	}
	return errs
}

// volumeKinds are the kinds of volumes that a policy may name.
func volumeKinds() []policyv1beta1.FSType {
	return []policyv1beta1.FSType{
		"azureFile", "flocker", "flexVolume", "hostPath", "emptyDir", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "secret", "nfs", "iscsi",
		"glusterfs", "persistentVolumeClaim", "rbd", "cinder", "cephFS", "downwardAPI", "fc", "configMap", "vsphereVolume", "quobyte", "azureDisk",
		"photonPersistentDisk", "storageos", "projected", "portworxVolume", "scaleIO", "csi", "ephemeral", everything,
	}
}

func validateStrategies(path *field.Path, spec *policyv1beta1.PodSecurityPolicySpec) field.ErrorList {
	errs := resource.OneOf(path.Child("seLinux", "rule"), spec.SELinux.Rule, mustRunAs, runAsAny)
	errs = append(errs, resource.OneOf(path.Child("runAsUser", "rule"), spec.RunAsUser.Rule, mustRunAs, mustRunAsNonRoot, runAsAny)...)
	errs = append(errs, validateRanges(path.Child("runAsUser", "ranges"), spec.RunAsUser.Ranges)...)
	if g := spec.RunAsGroup; g != nil {
		errs = append(errs, resource.OneOf(path.Child("runAsGroup", "rule"), g.Rule, mayRunAs, mustRunAs, runAsAny)...)
		errs = append(errs, validateRanges(path.Child("runAsGroup", "ranges"), g.Ranges)...)
	}
	errs = append(errs, resource.OneOf(path.Child("supplementalGroups", "rule"), spec.SupplementalGroups.Rule, mayRunAs, mustRunAs, runAsAny)...)
	errs = append(errs, validateRanges(path.Child("supplementalGroups", "ranges"), spec.SupplementalGroups.Ranges)...)
	errs = append(errs, resource.OneOf(path.Child("fsGroup", "rule"), spec.FSGroup.Rule, mayRunAs, mustRunAs, runAsAny)...)
	return append(errs, validateRanges(path.Child("fsGroup", "ranges"), spec.FSGroup.Ranges)...)
}

func validateRanges(path *field.Path, ranges []policyv1beta1.IDRange) field.ErrorList {
	var errs field.ErrorList
	for i, r := range ranges {
		if r.Min < 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("min"), r.Min, "min cannot be negative"))
		}
		if r.Max < 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("max"), r.Max, "max cannot be negative"))
		}
		if r.Min > r.Max {
			errs = append(errs, field.Invalid(path.Index(i), r, "min cannot be greater than max"))
		}
	}
	return errs
}

// validateCapabilities forbids that a capability is both dropped and added.
func validateCapabilities(path *field.Path, spec *policyv1beta1.PodSecurityPolicySpec) field.ErrorList {
	var errs field.ErrorList
	if slices.Contains(spec.RequiredDropCapabilities, everything) && len(spec.DefaultAddCapabilities)+len(spec.AllowedCapabilities) > 0 {
		errs = append(errs, field.Invalid(path.Child("requiredDropCapabilities"), spec.RequiredDropCapabilities, "all capabilities are dropped: none may be added"))
	}
	for _, c := range spec.DefaultAddCapabilities {
		if slices.Contains(spec.RequiredDropCapabilities, c) {
			errs = append(errs, field.Invalid(path.Child("defaultAddCapabilities"), c, "capability is also listed in requiredDropCapabilities"))
		}
	}
	for _, c := range spec.AllowedCapabilities {
		if slices.Contains(spec.RequiredDropCapabilities, c) {
			errs = append(errs, field.Invalid(path.Child("allowedCapabilities"), c, "capability is also listed in requiredDropCapabilities"))
		}
	}
	return errs
}

// sysctl matches the name of a sysctl, or a prefix of names with an asterisk.
var sysctl = regexp.MustCompile(`^([a-z0-9][-_a-z0-9]*[./])*([a-z0-9][-_a-z0-9]*|[a-z0-9][-_a-z0-9]*\*|\*)$`)

func validateSysctls(path *field.Path, spec *policyv1beta1.PodSecurityPolicySpec) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name     string
		patterns []string
	}{{"allowedUnsafeSysctls", spec.AllowedUnsafeSysctls}, {"forbiddenSysctls", spec.ForbiddenSysctls}} {
		for i, s := range list.patterns {
			if !sysctl.MatchString(s) || len(s) > 253 {
				errs = append(errs, field.Invalid(path.Child(list.name).Index(i), s, "must be the name of a sysctl of at most 253 characters, or a prefix with a trailing *"))
			}
		}
	}
	for i, allowed := range spec.AllowedUnsafeSysctls {
		for _, forbidden := range spec.ForbiddenSysctls {
			if overlap(allowed, forbidden) {
				errs = append(errs, field.Invalid(path.Child("allowedUnsafeSysctls").Index(i), allowed, fmt.Sprintf("sysctl overlaps with %s", forbidden)))
			}
		}
	}
	return errs
}

// overlap reports whether a sysctl matches both patterns.
func overlap(a, b string) bool {
	prefixA, patternA := strings.CutSuffix(a, everything)
	prefixB, patternB := strings.CutSuffix(b, everything)
	return a == b || patternA && strings.HasPrefix(prefixB, prefixA) || patternB && strings.HasPrefix(prefixA, prefixB)
}

// validateSources validates the lists of what volumes may use.
func validateSources(path *field.Path, spec *policyv1beta1.PodSecurityPolicySpec) field.ErrorList {
	var errs field.ErrorList
	for i, h := range spec.AllowedHostPaths {
		prefix := path.Child("allowedHostPaths").Index(i).Child("pathPrefix")
		switch {
		case h.PathPrefix == "":
			errs = append(errs, field.Required(prefix, "is required"))
		case slices.Contains(strings.Split(h.PathPrefix, "/"), ".."):
			errs = append(errs, field.Invalid(prefix, h.PathPrefix, "must not contain '..'"))
		}
	}
	for i, f := range spec.AllowedFlexVolumes {
		if f.Driver == "" {
			errs = append(errs, field.Required(path.Child("allowedFlexVolumes").Index(i).Child("driver"), "must specify a driver"))
		}
	}
	for i, d := range spec.AllowedCSIDrivers {
		name := path.Child("allowedCSIDrivers").Index(i).Child("name")
		if d.Name == "" {
			errs = append(errs, field.Required(name, ""))
		} else {
			errs = append(errs, resource.Invalid(name, d.Name, apivalidation.NameIsDNSSubdomain(strings.ToLower(d.Name), false))...)
		}
	}
	return errs
}

func validateRuntimeClasses(path *field.Path, r *policyv1beta1.RuntimeClassStrategyOptions) field.ErrorList {
	var errs field.ErrorList
	allowed := path.Child("allowedRuntimeClassNames")
	for i, name := range r.AllowedRuntimeClassNames {
		switch {
		case name == everything && len(r.AllowedRuntimeClassNames) > 1:
			errs = append(errs, field.Invalid(allowed, name, "if '*' is present, must not specify other RuntimeClass names"))
		case name != everything:
			errs = append(errs, resource.Invalid(allowed.Index(i), name, apivalidation.NameIsDNSSubdomain(name, false))...)
		}
		if slices.Contains(r.AllowedRuntimeClassNames[:i], name) {
			errs = append(errs, field.Duplicate(allowed.Index(i), name))
		}
	}
	if d := r.DefaultRuntimeClassName; d != nil {
		errs = append(errs, resource.Invalid(path.Child("defaultRuntimeClassName"), *d, apivalidation.NameIsDNSSubdomain(*d, false))...)
		if !slices.Contains(r.AllowedRuntimeClassNames, everything) && !slices.Contains(r.AllowedRuntimeClassNames, *d) {
			errs = append(errs, field.Required(allowed, fmt.Sprintf("default %q must be present", *d)))
		}
	}
	return errs
}
