package container

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerSecurity returns a container's user, groups, capabilities and profiles. As in
// kubelet, windowsOptions mean nothing on Linux: a pod may have them for nodes of both.
func containerSecurity(in Input) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := effective(in.Pod, in.Container)
	security := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:   capabilities(sc.Capabilities),
		Privileged:     sc.Privileged != nil && *sc.Privileged,
		SelinuxOptions: selinuxOptions(sc.SELinuxOptions),
		RunAsUser:      int64Value(sc.RunAsUser),
		RunAsGroup:     int64Value(sc.RunAsGroup),
		ReadonlyRootfs: sc.ReadOnlyRootFilesystem != nil && *sc.ReadOnlyRootFilesystem,
		NoNewPrivs:     sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		MaskedPaths:    maskedPaths(in.Options.Host, sc.ProcMount),
		ReadonlyPaths:  readonlyPaths(sc.ProcMount),
	}
	if security.RunAsUser == nil {
		security.RunAsUser = int64Value(in.ImageUser.UID)
		security.RunAsUsername = in.ImageUser.Name
	}
	var err error
	if security.NamespaceOptions, err = namespaces(in.Pod, in.UserNamespace); err != nil {
		return nil, err
	}
	if in.TargetID != "" && security.NamespaceOptions.Pid == runtimeapi.NamespaceMode_CONTAINER {
		security.NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET
		security.NamespaceOptions.TargetId = in.TargetID
	}
	if pod := in.Pod.Spec.SecurityContext; pod != nil {
		security.SupplementalGroups = supplementalGroups(pod, in.SupplementalGroups)
		if security.SupplementalGroupsPolicy, err = supplementalGroupsPolicy(pod); err != nil {
			return nil, err
		}
	} else {
		security.SupplementalGroups = in.SupplementalGroups
	}
	if security.Seccomp, err = seccomp(in.Options, in.Pod, in.Container); err != nil {
		return nil, err
	}
	if security.Apparmor, security.ApparmorProfile, err = appArmor(in.Options.Host, in.Pod, in.Container); err != nil { //nolint:staticcheck // older runtimes read this one
		return nil, err
	}
	return security, nil
}

// effective returns a container's security context over that of its pod: fields
// that the container sets win.
func effective(pod *corev1.Pod, container *corev1.Container) corev1.SecurityContext {
	var sc corev1.SecurityContext
	if container.SecurityContext != nil {
		sc = *container.SecurityContext
	}
	ofPod := pod.Spec.SecurityContext
	if ofPod == nil {
		return sc
	}
	if sc.SELinuxOptions == nil {
		sc.SELinuxOptions = ofPod.SELinuxOptions
	}
	if sc.RunAsUser == nil {
		sc.RunAsUser = ofPod.RunAsUser
	}
	if sc.RunAsGroup == nil {
		sc.RunAsGroup = ofPod.RunAsGroup
	}
	if sc.RunAsNonRoot == nil {
		sc.RunAsNonRoot = ofPod.RunAsNonRoot
	}
	return sc
}

// verifyRunAsNonRoot refuses a container with runAsNonRoot that would run as root,
// or as a user of which only the name is known.
func verifyRunAsNonRoot(in Input) error {
	sc := effective(in.Pod, in.Container)
	if sc.RunAsNonRoot == nil || !*sc.RunAsNonRoot {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)", describe(in.Pod), in.Container.Name)
	user := in.ImageUser
	switch {
	case sc.RunAsUser != nil && *sc.RunAsUser == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
	case sc.RunAsUser != nil:
		return nil
	case user.UID == nil:
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", user.Name, where)
	case *user.UID == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
	}
	if problems := validation.IsValidUserID(*user.UID); len(problems) > 0 {
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d). (Must be 1-(%d)): %s %s",
			*user.UID, math.MaxInt32, strings.Join(problems, "; "), where)
	}
	return nil
}

func capabilities(c *corev1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	names := func(list []corev1.Capability) []string {
		var names []string
		for _, name := range list {
			names = append(names, string(name))
		}
		return names
	}
	return &runtimeapi.Capability{AddCapabilities: names(c.Add), DropCapabilities: names(c.Drop)}
}

// unmasked reports whether all of /proc is visible. The default masks the same
// paths as Docker.
func unmasked(procMount *corev1.ProcMountType) bool {
	return procMount != nil && *procMount == corev1.UnmaskedProcMount
}

func maskedPaths(host Host, procMount *corev1.ProcMountType) []string {
	if unmasked(procMount) {
		return nil
	}
	return append([]string{
		"/proc/asound",
		"/proc/acpi",
		"/proc/interrupts",
		"/proc/kcore",
		"/proc/keys",
		"/proc/latency_stats",
		"/proc/timer_list",
		"/proc/timer_stats",
		"/proc/sched_debug",
		"/proc/scsi",
		"/sys/firmware",
		"/sys/devices/virtual/powercap",
	}, host.ThermalThrottle...)
}

func readonlyPaths(procMount *corev1.ProcMountType) []string {
	if unmasked(procMount) {
		return nil
	}
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// seccomp returns the profile of a container, of its pod, or the node's default.
func seccomp(o Options, pod *corev1.Pod, container *corev1.Container) (*runtimeapi.SecurityProfile, error) {
	var profile *corev1.SeccompProfile
	if pod.Spec.SecurityContext != nil {
		profile = pod.Spec.SecurityContext.SeccompProfile
	}
	if container.SecurityContext != nil && container.SecurityContext.SeccompProfile != nil {
		profile = container.SecurityContext.SeccompProfile
	}
	switch {
	case profile == nil && o.SeccompDefault,
		profile != nil && profile.Type == corev1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case profile == nil || profile.Type != corev1.SeccompProfileTypeLocalhost:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case profile.LocalhostProfile == nil || *profile.LocalhostProfile == "":
		return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost.") //nolint:staticcheck // users see this text
	case !filepath.IsLocal(*profile.LocalhostProfile):
		return nil, fmt.Errorf("localhostProfile %q must be a path below the node's directory of seccomp profiles", *profile.LocalhostProfile)
	}
	return &runtimeapi.SecurityProfile{
		ProfileType:  runtimeapi.SecurityProfile_Localhost,
		LocalhostRef: filepath.Join(o.SeccompRoot, *profile.LocalhostProfile),
	}, nil
}

// appArmor returns a container's profile in the current form and in the one for
// older runtimes. On a host without AppArmor, a container that requests a profile
// is refused, and others have none.
func appArmor(host Host, pod *corev1.Pod, container *corev1.Container) (*runtimeapi.SecurityProfile, string, error) {
	profile := appArmorProfile(pod, container)
	if profile == nil {
		return nil, "", nil
	}
	if profile.Type == corev1.AppArmorProfileTypeUnconfined {
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			corev1.DeprecatedAppArmorBetaProfileNameUnconfined, nil
	}
	if !host.AppArmor {
		return nil, "", errors.New("Cannot enforce AppArmor: AppArmor is not enabled on the host") //nolint:staticcheck // users see this text
	}
	switch profile.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, nil
	case corev1.AppArmorProfileTypeLocalhost:
		if profile.LocalhostProfile == nil || *profile.LocalhostProfile == "" {
			return nil, "", errors.New("missing localhost apparmor profile name")
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *profile.LocalhostProfile},
			corev1.DeprecatedAppArmorBetaProfileNamePrefix + *profile.LocalhostProfile, nil
	default:
		return nil, "", fmt.Errorf("unknown apparmor profile type: %q", profile.Type)
	}
}

// appArmorProfile returns a container's profile: from its field, the older
// annotation, or its pod.
func appArmorProfile(pod *corev1.Pod, container *corev1.Container) *corev1.AppArmorProfile {
	if sc := container.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		return sc.AppArmorProfile
	}
	if old, annotated := pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container.Name]; annotated {
		name, local := strings.CutPrefix(old, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
		switch {
		case old == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
			return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
		case old == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
			return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		case local:
			return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
		}
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.AppArmorProfile
	}
	return nil
}
