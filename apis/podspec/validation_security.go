package podspec

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/node/util/sysctl"

	"svc.dev/svc/apis/resource"
)

func podSecurityContextIsValid(s *podSpec) field.ErrorList {
	sc, path := s.SecurityContext, s.path.Child("securityContext")
	if sc == nil {
		return nil
	}
	var errs field.ErrorList
	if sc.FSGroup != nil {
		errs = append(errs, resource.Invalid(path.Child("fsGroup"), *sc.FSGroup, validation.IsValidGroupID(*sc.FSGroup))...)
	}
	errs = append(errs, validateRunAs(sc.RunAsUser, sc.RunAsGroup, path)...)
	for i, group := range sc.SupplementalGroups {
		errs = append(errs, resource.Invalid(path.Child("supplementalGroups").Index(i), group, validation.IsValidGroupID(group))...)
	}
	if s.ShareProcessNamespace != nil && *s.ShareProcessNamespace && s.HostPID {
		errs = append(errs, field.Invalid(s.path.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	errs = append(errs, s.validateSysctls(path.Child("sysctls"))...)
	errs = append(errs, resource.OptionalOneOf(path.Child("fsGroupChangePolicy"), sc.FSGroupChangePolicy, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)...)
	errs = append(errs, validateSeccomp(sc.SeccompProfile, path.Child("seccompProfile"))...)
	errs = append(errs, validateWindowsOptions(sc.WindowsOptions, path.Child("windowsOptions"))...)
	errs = append(errs, validateAppArmor(sc.AppArmorProfile, path.Child("appArmorProfile"))...)
	errs = append(errs, resource.OptionalOneOf(path.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)...)
	return append(errs, resource.OptionalOneOf(path.Child("seLinuxChangePolicy"), sc.SELinuxChangePolicy, corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)...)
}

func validateRunAs(user, group *int64, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if user != nil {
		errs = append(errs, resource.Invalid(path.Child("runAsUser"), *user, validation.IsValidUserID(*user))...)
	}
	if group != nil {
		errs = append(errs, resource.Invalid(path.Child("runAsGroup"), *group, validation.IsValidGroupID(*group))...)
	}
	return errs
}

const maxSysctlName = 253

// sysctlName allows dots and slashes between the segments (sysctl.d(5)).
var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func (s *podSpec) validateSysctls(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, setting := range s.SecurityContext.Sysctls {
		path, name := path.Index(i).Child("name"), setting.Name
		switch {
		case name == "":
			errs = append(errs, field.Required(path, ""))
		case len(name) > maxSysctlName || !sysctlName.MatchString(name):
			errs = append(errs, field.Invalid(path, name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctlName, sysctlName)))
		default:
			errs = append(errs, resource.Unique(path, name, seen)...)
		}
		switch namespace, _, _ := sysctl.GetNamespace(name); {
		case s.HostNetwork && namespace == sysctl.NetNamespace:
			errs = append(errs, field.Invalid(path, name, "may not be specified when 'hostNetwork' is true"))
		case s.HostIPC && namespace == sysctl.IPCNamespace:
			errs = append(errs, field.Invalid(path, name, "may not be specified when 'hostIPC' is true"))
		}
	}
	return errs
}

func (s *podSpec) validateSecurityContext(sc *corev1.SecurityContext, path *field.Path) field.ErrorList {
	if sc == nil {
		return nil
	}
	errs := validateRunAs(sc.RunAsUser, sc.RunAsGroup, path)
	if sc.ProcMount != nil {
		errs = append(errs, resource.OptionalOneOf(path.Child("procMount"), sc.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
		if s.hostUsers && *sc.ProcMount == corev1.UnmaskedProcMount {
			errs = append(errs, field.Invalid(path.Child("procMount"), *sc.ProcMount, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	errs = append(errs, validateSeccomp(sc.SeccompProfile, path.Child("seccompProfile"))...)
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		if sc.Privileged != nil && *sc.Privileged {
			errs = append(errs, field.Invalid(path, sc, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if sc.Capabilities != nil {
			for _, capability := range sc.Capabilities.Add {
				if capability == "CAP_SYS_ADMIN" {
					errs = append(errs, field.Invalid(path, sc, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
				}
			}
		}
	}
	errs = append(errs, validateWindowsOptions(sc.WindowsOptions, path.Child("windowsOptions"))...)
	return append(errs, validateAppArmor(sc.AppArmorProfile, path.Child("appArmorProfile"))...)
}

func validateSeccomp(p *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	if p.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "type is required when seccompProfile is set"))
	} else {
		errs = append(errs, resource.OptionalOneOf(path.Child("type"), &p.Type,
			corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)...)
	}
	local := path.Child("localhostProfile")
	switch {
	case p.Type != corev1.SeccompProfileTypeLocalhost && p.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(local, *p.LocalhostProfile, "can only be set when seccomp type is Localhost"))
	case p.Type == corev1.SeccompProfileTypeLocalhost && p.LocalhostProfile == nil:
		errs = append(errs, field.Required(local, "must be set when seccomp type is Localhost"))
	case p.Type == corev1.SeccompProfileTypeLocalhost:
		errs = append(errs, descends(*p.LocalhostProfile, local)...)
	}
	return errs
}

// maxAppArmorProfile is the longest path that the kernel takes (PATH_MAX - 1).
const maxAppArmorProfile = 4095

func validateAppArmor(p *corev1.AppArmorProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	local := path.Child("localhostProfile")
	switch p.Type {
	case "":
		return field.ErrorList{field.Required(path.Child("type"), "type is required when appArmorProfile is set")}
	case corev1.AppArmorProfileTypeLocalhost:
		switch {
		case p.LocalhostProfile == nil || *p.LocalhostProfile == "":
			return field.ErrorList{field.Required(local, "must be set when AppArmor type is Localhost")}
		case strings.TrimSpace(*p.LocalhostProfile) != *p.LocalhostProfile:
			return field.ErrorList{field.Invalid(local, *p.LocalhostProfile, "must not be padded with whitespace")}
		case len(*p.LocalhostProfile) > maxAppArmorProfile:
			return field.ErrorList{field.TooLong(local, "", maxAppArmorProfile)}
		}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			return field.ErrorList{field.Invalid(local, *p.LocalhostProfile, "can only be set when AppArmor type is Localhost")}
		}
	}
	return resource.OptionalOneOf(path.Child("type"), &p.Type,
		corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
}
