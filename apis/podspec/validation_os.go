package podspec

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

func osIsValid(s *podSpec) field.ErrorList {
	if s.OS == nil {
		return nil
	}
	path := s.path.Child("os")
	switch s.OS.Name {
	case "":
		return field.ErrorList{field.Required(path.Child("name"), "")}
	case corev1.Linux:
		return forbidForLinux(s)
	case corev1.Windows:
		return forbidForWindows(s)
	}
	return field.ErrorList{field.NotSupported(path, s.OS.Name, []corev1.OSName{corev1.Linux, corev1.Windows})}
}

func forbidForLinux(s *podSpec) field.ErrorList {
	const msg = "windows options cannot be set for a linux pod"
	var errs field.ErrorList
	if s.SecurityContext != nil && s.SecurityContext.WindowsOptions != nil {
		errs = append(errs, field.Forbidden(s.path.Child("securityContext", "windowsOptions"), msg))
	}
	for at, c := range All(s.PodSpec) {
		if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil {
			errs = append(errs, field.Forbidden(at.Path(s.path).Child("securityContext", "windowsOptions"), msg))
		}
	}
	return errs
}

// setField is a field, and whether it has a value.
type setField struct {
	name string
	set  bool
}

func forbidSet(path *field.Path, msg string, fields []setField) field.ErrorList {
	var errs field.ErrorList
	for _, f := range fields {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.name), msg))
		}
	}
	return errs
}

func forbidForWindows(s *podSpec) field.ErrorList {
	const msg = "cannot be set for a windows pod"
	errs := forbidSet(s.path, msg, []setField{
		{"hostUsers", s.HostUsers != nil},
		{"hostPID", s.HostPID},
		{"hostIPC", s.HostIPC},
		{"shareProcessNamespace", s.ShareProcessNamespace != nil},
	})
	if sc := s.SecurityContext; sc != nil {
		errs = append(errs, forbidSet(s.path.Child("securityContext"), msg, []setField{
			{"appArmorProfile", sc.AppArmorProfile != nil},
			{"seLinuxOptions", sc.SELinuxOptions != nil},
			{"seccompProfile", sc.SeccompProfile != nil},
			{"fsGroup", sc.FSGroup != nil},
			{"fsGroupChangePolicy", sc.FSGroupChangePolicy != nil},
			{"sysctls", len(sc.Sysctls) > 0},
			{"runAsUser", sc.RunAsUser != nil},
			{"runAsGroup", sc.RunAsGroup != nil},
			{"supplementalGroups", sc.SupplementalGroups != nil},
			{"supplementalGroupsPolicy", sc.SupplementalGroupsPolicy != nil},
			{"seLinuxChangePolicy", sc.SELinuxChangePolicy != nil},
		})...)
	}
	for at, c := range All(s.PodSpec) {
		sc := c.SecurityContext
		if sc == nil {
			continue
		}
		errs = append(errs, forbidSet(at.Path(s.path).Child("securityContext"), msg, []setField{
			{"appArmorProfile", sc.AppArmorProfile != nil},
			{"seLinuxOptions", sc.SELinuxOptions != nil},
			{"seccompProfile", sc.SeccompProfile != nil},
			{"capabilities", sc.Capabilities != nil},
			{"readOnlyRootFilesystem", sc.ReadOnlyRootFilesystem != nil},
			{"privileged", sc.Privileged != nil},
			{"allowPrivilegeEscalation", sc.AllowPrivilegeEscalation != nil},
			{"procMount", sc.ProcMount != nil},
			{"runAsUser", sc.RunAsUser != nil},
			{"runAsGroup", sc.RunAsGroup != nil},
		})...)
	}
	return errs
}

// hostProcessContainersAreValid requires that HostProcess pods use the host's
// network and have only HostProcess containers.
func hostProcessContainersAreValid(s *podSpec) field.ErrorList {
	pod := podHostProcess(s.PodSpec)
	var errs field.ErrorList
	containers, onHost := 0, 0
	for at, c := range All(s.PodSpec) {
		containers++
		own := hostProcess(c.SecurityContext, pod)
		if pod != nil && *own != *pod {
			errs = append(errs, field.Invalid(at.Path(s.path).Child("securityContext", "windowsOptions", "hostProcess"), *own,
				fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *pod)))
		}
		if own != nil && *own {
			onHost++
		}
	}
	if onHost > 0 && onHost != containers {
		errs = append(errs, field.Invalid(s.path, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers"))
	}
	if onHost > 0 && !s.HostNetwork {
		errs = append(errs, field.Invalid(s.path.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers"))
	}
	return errs
}

// podHostProcess returns the pod's hostProcess, the default for its containers.
func podHostProcess(spec *corev1.PodSpec) *bool {
	if spec.SecurityContext == nil || spec.SecurityContext.WindowsOptions == nil {
		return nil
	}
	return spec.SecurityContext.WindowsOptions.HostProcess
}

// hostProcess returns a container's hostProcess; pod is the pod's, the default.
func hostProcess(sc *corev1.SecurityContext, pod *bool) *bool {
	if sc == nil || sc.WindowsOptions == nil || sc.WindowsOptions.HostProcess == nil {
		return pod
	}
	return sc.WindowsOptions.HostProcess
}

// The limits of Windows' names of users ("DOMAIN\user") and of the credential
// specs of group-managed service accounts, in bytes.
const (
	maxCredentialSpec    = 64 << 10
	maxWindowsUserDomain = 255
	maxWindowsUser       = 104
)

var (
	controlCharacter = regexp.MustCompile(`[[:cntrl:]]+`)
	// A NetBIOS domain has 15 characters at most and does not begin with a dot.
	netBIOSDomain = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	dnsDomain     = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	dotsAndSpaces = regexp.MustCompile(`^[\. ]+$`)
)

func validateWindowsOptions(o *corev1.WindowsSecurityContextOptions, path *field.Path) field.ErrorList {
	if o == nil {
		return nil
	}
	var errs field.ErrorList
	if name := o.GMSACredentialSpecName; name != nil {
		errs = append(errs, resource.Invalid(path.Child("gmsaCredentialSpecName"), *name, validation.IsDNS1123Subdomain(*name))...)
	}
	if spec := o.GMSACredentialSpec; spec != nil {
		switch {
		case *spec == "":
			errs = append(errs, field.Invalid(path.Child("gmsaCredentialSpec"), "", "gmsaCredentialSpec cannot be an empty string"))
		case len(*spec) > maxCredentialSpec:
			errs = append(errs, field.Invalid(path.Child("gmsaCredentialSpec"), *spec, "gmsaCredentialSpec size must be under 64 KiB"))
		}
	}
	if o.RunAsUserName != nil {
		errs = append(errs, resource.Invalid(path.Child("runAsUserName"), *o.RunAsUserName, windowsUserProblems(*o.RunAsUserName))...)
	}
	return errs
}

func windowsUserProblems(name string) []string {
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		domain, user = "", name
	}
	switch {
	case name == "":
		return []string{"runAsUserName cannot be an empty string"}
	case controlCharacter.MatchString(name):
		return []string{"runAsUserName cannot contain control characters"}
	case strings.Contains(user, `\`):
		return []string{"runAsUserName cannot contain more than one backslash"}
	}
	var problems []string
	if len(domain) > maxWindowsUserDomain {
		problems = append(problems, "runAsUserName's Domain length must be under 256 characters")
	}
	if hasDomain && !netBIOSDomain.MatchString(domain) && !dnsDomain.MatchString(domain) {
		problems = append(problems, "runAsUserName's Domain doesn't match the NetBios nor the DNS format")
	}
	if user == "" {
		problems = append(problems, "runAsUserName's User cannot be empty")
	}
	if len(user) > maxWindowsUser {
		problems = append(problems, fmt.Sprintf("runAsUserName's User length must not be longer than %d characters", maxWindowsUser))
	}
	if dotsAndSpaces.MatchString(user) {
		problems = append(problems, "runAsUserName's User cannot contain only periods or spaces")
	}
	if strings.ContainsAny(user, `"/\:;|=,+*?<>@[]`) {
		problems = append(problems, "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
	}
	return problems
}
