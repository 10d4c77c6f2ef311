package podspec

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

func mainContainersAreValid(s *podSpec) field.ErrorList {
	path := s.path.Child(string(Containers))
	if len(s.Containers) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	names, ports := sets.New[string](), sets.New[string]()
	for i := range s.Containers {
		c := &s.Containers[i]
		errs = append(errs, s.validateContainer(c, path.Index(i))...)
		errs = append(errs, resource.Unique(path.Index(i).Child("name"), c.Name, names)...)
		errs = append(errs, s.validateHooks(c, path.Index(i))...)
		errs = append(errs, validateRestartRules(c, path.Index(i))...)
	}
	for i := range s.Containers {
		errs = append(errs, hostPortsAreUnique(&s.Containers[i], ports, path.Index(i))...)
	}
	return errs
}

func initContainersAreValid(s *podSpec) field.ErrorList {
	names := sets.New[string]()
	for _, c := range s.Containers {
		names.Insert(c.Name)
	}
	var errs field.ErrorList
	for i := range s.InitContainers {
		c, path := &s.InitContainers[i], s.path.Child(string(InitContainers)).Index(i)
		errs = append(errs, s.validateContainer(c, path)...)
		errs = append(errs, validateRestartRules(c, path)...)
		if c.Name != "" {
			errs = append(errs, resource.Unique(path.Child("name"), c.Name, names)...)
		}
		// Init containers run one after the other: their ports must only be unique
		// within each.
		errs = append(errs, hostPortsAreUnique(c, sets.New[string](), path)...)
		if IsSidecar(InitContainers, c) {
			errs = append(errs, s.validateHooks(c, path)...)
		} else {
			errs = append(errs, mayNotKeepRunning(c, path)...)
		}
	}
	return errs
}

// mayNotKeepRunning forbids lifecycle hooks, probes and restarts on resize, which
// only containers that keep running may have.
func mayNotKeepRunning(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"lifecycle", c.Lifecycle != nil},
		{"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.name), "may not be set for init containers without restartPolicy=Always"))
		}
	}
	for i, p := range c.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer {
			errs = append(errs, field.Invalid(path.Child("resizePolicy").Index(i).Child("restartPolicy"), p.RestartPolicy,
				"must not be set to 'RestartContainer' for non-sidecar initContainers"))
		}
	}
	return errs
}

// ephemeralFields are the fields of a container that an ephemeral container may
// have.
var ephemeralFields = sets.New("Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env",
	"VolumeMounts", "VolumeDevices", "TerminationMessagePath", "TerminationMessagePolicy",
	"ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY")

func ephemeralContainersAreValid(s *podSpec) field.ErrorList {
	if len(s.EphemeralContainers) == 0 {
		return nil
	}
	others := sets.New[string]()
	for at, c := range All(s.PodSpec) {
		if at.List != EphemeralContainers {
			others.Insert(c.Name)
		}
	}
	names := others.Clone()
	var errs field.ErrorList
	for i := range s.EphemeralContainers {
		ephemeral, path := &s.EphemeralContainers[i], s.path.Child(string(EphemeralContainers)).Index(i)
		c := (*corev1.Container)(&ephemeral.EphemeralContainerCommon)
		errs = append(errs, s.validateContainer(c, path)...)
		errs = append(errs, ValidateImageTrimmed(c, path)...)
		errs = append(errs, resource.Unique(path.Child("name"), c.Name, names)...)
		if target := ephemeral.TargetContainerName; target != "" && !others.Has(target) {
			errs = append(errs, field.NotFound(path.Child("targetContainerName"), target))
		}
		errs = append(errs, mayOnlySet(*c, ephemeralFields, "cannot be set for an Ephemeral Container", path)...)
		for j, mount := range c.VolumeMounts {
			if mount.SubPath != "" {
				errs = append(errs, field.Forbidden(path.Child("volumeMounts").Index(j).Child("subPath"), "cannot be set for an Ephemeral Container"))
			}
			if mount.SubPathExpr != "" {
				errs = append(errs, field.Forbidden(path.Child("volumeMounts").Index(j).Child("subPathExpr"), "cannot be set for an Ephemeral Container"))
			}
		}
	}
	return errs
}

// mayOnlySet forbids all fields of a struct but the allowed ones, so that a new
// field of the API is forbidden until it is added to the list.
func mayOnlySet(value any, allowed sets.Set[string], msg string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	v := reflect.ValueOf(value)
	for i := range v.NumField() {
		if f := v.Type().Field(i); !allowed.Has(f.Name) && !v.Field(i).IsZero() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			errs = append(errs, field.Forbidden(path.Child(name), msg))
		}
	}
	return errs
}

// validateContainer validates what containers of all kinds have in common.
func (s *podSpec) validateContainer(c *corev1.Container, path *field.Path) field.ErrorList {
	errs := validateLabelName(path.Child("name"), c.Name)
	errs = append(errs, resource.Required(path.Child("image"), c.Image)...)
	errs = append(errs, resource.RequiredOneOf(path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, path.Child("ports"))...)
	errs = append(errs, validateEnv(c.Env, path.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, path.Child("envFrom"))...)
	errs = append(errs, s.validateMounts(c, path.Child("volumeMounts"))...)
	errs = append(errs, s.validateDevices(c, path.Child("volumeDevices"))...)
	errs = append(errs, validatePullPolicy(c.ImagePullPolicy, path.Child("imagePullPolicy"))...)
	errs = append(errs, validateContainerResources(&c.Resources, s.claims, path.Child("resources"))...)
	errs = append(errs, s.validateResizePolicy(c.ResizePolicy, path.Child("resizePolicy"))...)
	errs = append(errs, s.validateSecurityContext(c.SecurityContext, path.Child("securityContext"))...)
	return errs
}

// ValidateImageTrimmed forbids white space around an image. It is a rule for pods
// only: templates with a blank image are in use as placeholders.
func ValidateImageTrimmed(c *corev1.Container, path *field.Path) field.ErrorList {
	if strings.TrimSpace(c.Image) != c.Image {
		return field.ErrorList{field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing whitespace")}
	}
	return nil
}

func validateLabelName(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return resource.Invalid(path, name, validation.IsDNS1123Label(name))
}

func validatePullPolicy(policy corev1.PullPolicy, path *field.Path) field.ErrorList {
	return resource.RequiredOneOf(path, policy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

func validatePorts(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, port := range ports {
		path := path.Index(i)
		if port.Name != "" {
			if msgs := validation.IsValidPortName(port.Name); len(msgs) > 0 {
				errs = append(errs, resource.Invalid(path.Child("name"), port.Name, msgs)...)
			} else {
				errs = append(errs, resource.Unique(path.Child("name"), port.Name, names)...)
			}
		}
		if port.ContainerPort == 0 {
			errs = append(errs, field.Required(path.Child("containerPort"), ""))
		} else {
			errs = append(errs, resource.Invalid(path.Child("containerPort"), port.ContainerPort, validation.IsValidPortNum(int(port.ContainerPort)))...)
		}
		if port.HostPort != 0 {
			errs = append(errs, resource.Invalid(path.Child("hostPort"), port.HostPort, validation.IsValidPortNum(int(port.HostPort)))...)
		}
		errs = append(errs, resource.RequiredOneOf(path.Child("protocol"), port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
	}
	return errs
}

func hostPortsAreUnique(c *corev1.Container, seen sets.Set[string], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, port := range c.Ports {
		if port.HostPort != 0 {
			errs = append(errs, resource.Unique(path.Child("ports").Index(i).Child("hostPort"),
				fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort), seen)...)
		}
	}
	return errs
}

// The bounds of the restart rules of a container (v1.ContainerRestartRule).
const (
	maxRestartRules     = 20
	maxRestartExitCodes = 255
)

func validateRestartRules(c *corev1.Container, path *field.Path) field.ErrorList {
	rulesPath := path.Child("restartPolicyRules")
	var errs field.ErrorList
	if c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0 {
		errs = append(errs, field.Required(path.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	errs = append(errs, resource.OptionalOneOf(path.Child("restartPolicy"), c.RestartPolicy,
		corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)...)
	if n := len(c.RestartPolicyRules); n > maxRestartRules {
		errs = append(errs, field.TooMany(rulesPath, n, maxRestartRules))
	}
	for i, rule := range c.RestartPolicyRules {
		path := rulesPath.Index(i)
		errs = append(errs, resource.OptionalOneOf(path.Child("action"), &rule.Action,
			corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)...)
		if rule.ExitCodes == nil {
			errs = append(errs, field.Required(path.Child("exitCodes"), "must be specified"))
			continue
		}
		errs = append(errs, resource.OptionalOneOf(path.Child("exitCodes", "operator"), &rule.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if n := len(rule.ExitCodes.Values); n > maxRestartExitCodes {
			errs = append(errs, field.TooMany(path.Child("exitCodes", "values"), n, maxRestartExitCodes))
		}
	}
	return errs
}

func (s *podSpec) validateResizePolicy(policies []corev1.ContainerResizePolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[corev1.ResourceName]()
	for i, p := range policies {
		if seen.Has(p.ResourceName) {
			errs = append(errs, field.Duplicate(path.Index(i), p.ResourceName))
		}
		seen.Insert(p.ResourceName)
		errs = append(errs, resource.RequiredOneOf(path, p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, resource.RequiredOneOf(path, p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)...)
		if s.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			errs = append(errs, field.Invalid(path, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
	return errs
}
