package podspec

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// ValidateTemplate validates a template of pods; path is the template's.
// The workload that has the template checks its own rules: the restart policy,
// and that the selector matches the labels.
func ValidateTemplate(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	specPath := path.Child("spec")
	errs := metav1validation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	errs = append(errs, ValidateAnnotations(t.Annotations, &t.Spec, path.Child("annotations"))...)
	errs = append(errs, Validate(&t.Spec, nil, specPath)...)
	errs = append(errs, ValidateProfileAnnotations(t.Annotations, &t.Spec, specPath)...)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(specPath.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}

// Validate validates a defaulted pod spec; path is the spec's. The metadata
// is that of the pod, nil for a template.
func Validate(spec *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	s := newPodSpec(spec, meta, path)
	var errs field.ErrorList
	for _, rule := range podSpecRules {
		errs = append(errs, rule(s)...)
	}
	return errs
}

// podSpec is a PodSpec that is validated, with the names that its parts refer to.
type podSpec struct {
	*corev1.PodSpec
	path *field.Path
	// meta is nil for a template.
	meta *metav1.ObjectMeta
	// volumes are the sources of the spec's valid volumes, by the volume's name, once
	// volumesAreValid has run.
	volumes map[string]*corev1.VolumeSource
	// claims are the names of the spec's resource claims.
	claims sets.Set[string]
	// hostUsers is false for a pod with a user namespace of its own.
	hostUsers bool
}

func newPodSpec(spec *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path) *podSpec {
	s := &podSpec{
		PodSpec: spec, path: path, meta: meta,
		volumes:   make(map[string]*corev1.VolumeSource, len(spec.Volumes)),
		claims:    sets.New[string](),
		hostUsers: spec.HostUsers == nil || *spec.HostUsers,
	}
	for _, claim := range spec.ResourceClaims {
		if claim.Name != "" {
			s.claims.Insert(claim.Name)
		}
	}
	return s
}

// podSpecRules holds the validation rules of a PodSpec, in the order in which
// kube-apiserver reports them.
var podSpecRules = []func(*podSpec) field.ErrorList{
	gracePeriodIsSet,
	volumesAreValid,
	resourceClaimsAreValid,
	mainContainersAreValid,
	initContainersAreValid,
	ephemeralContainersAreValid,
	podResourcesAreValid,
	hostPortsMatchOnHostNetwork,
	restartPolicyIsKnown,
	dnsPolicyIsKnown,
	nodeSelectorIsValid,
	podSecurityContextIsValid,
	affinityIsValid,
	dnsConfigIsValid,
	readinessGatesAreValid,
	schedulingGatesAreValid,
	topologySpreadConstraintsAreValid,
	hostProcessContainersAreValid,
	userNamespaceIsPossible,
	hostnameOverrideIsValid,
	namesAreValid,
	activeDeadlineIsInRange,
	tolerationsAreValid,
	hostAliasesAreValid,
	classesAreValid,
	overheadIsValid,
	osIsValid,
	schedulingGroupIsValid,
	evictionRespondersAreValid,
	fileKeysReferToEmptyDirs,
}

func gracePeriodIsSet(s *podSpec) field.ErrorList {
	if s.TerminationGracePeriodSeconds == nil {
		return field.ErrorList{field.Required(s.path.Child("terminationGracePeriodSeconds"), "")}
	}
	return nil
}

// hostPortsMatchOnHostNetwork requires host ports equal to container ports on the
// host's network. In a template zero means the default, which pods get when they
// are created.
func hostPortsMatchOnHostNetwork(s *podSpec) field.ErrorList {
	if !s.HostNetwork {
		return nil
	}
	var errs field.ErrorList
	for i, c := range s.Containers {
		for j, port := range c.Ports {
			if port.HostPort != port.ContainerPort && (s.meta != nil || port.HostPort != 0) {
				errs = append(errs, field.Invalid(s.path.Child("containers").Index(i).Child("ports").Index(j).Child("hostPort"),
					port.HostPort, "must match `containerPort` when `hostNetwork` is true"))
			}
		}
	}
	return errs
}

func restartPolicyIsKnown(s *podSpec) field.ErrorList {
	return resource.RequiredOneOf(s.path.Child("restartPolicy"), s.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
}

func dnsPolicyIsKnown(s *podSpec) field.ErrorList {
	return resource.RequiredOneOf(s.path.Child("dnsPolicy"), s.DNSPolicy,
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
}

// The limits of the resolver of glibc (resolv.conf(5)), the search list's as
// widened by Kubernetes.
const (
	maxDNSNameservers     = 3
	maxDNSSearchPaths     = 32
	maxDNSSearchListChars = 2048
)

func dnsConfigIsValid(s *podSpec) field.ErrorList {
	path, config := s.path.Child("dnsConfig"), s.DNSConfig
	if config == nil {
		if s.DNSPolicy == corev1.DNSNone {
			return field.ErrorList{field.Required(path, "must provide `dnsConfig` when `dnsPolicy` is None")}
		}
		return nil
	}
	if s.DNSPolicy == corev1.DNSNone && len(config.Nameservers) == 0 {
		return field.ErrorList{field.Required(path.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")}
	}
	var errs field.ErrorList
	if len(config.Nameservers) > maxDNSNameservers {
		errs = append(errs, field.Invalid(path.Child("nameservers"), config.Nameservers, fmt.Sprintf("must not have more than %d nameservers", maxDNSNameservers)))
	}
	for i, server := range config.Nameservers {
		errs = append(errs, resource.IP(path.Child("nameservers").Index(i), server)...)
	}
	if len(config.Searches) > maxDNSSearchPaths {
		errs = append(errs, field.Invalid(path.Child("searches"), config.Searches, fmt.Sprintf("must not have more than %d search paths", maxDNSSearchPaths)))
	}
	if len(strings.Join(config.Searches, " ")) > maxDNSSearchListChars {
		errs = append(errs, field.Invalid(path.Child("searches"), config.Searches, fmt.Sprintf("must not have more than %d characters (including spaces) in the search list", maxDNSSearchListChars)))
	}
	for i, search := range config.Searches {
		if search != "." {
			name := strings.TrimSuffix(search, ".")
			errs = append(errs, resource.Invalid(path.Child("searches").Index(i), name, validation.IsDNS1123SubdomainWithUnderscore(name))...)
		}
	}
	for i, option := range config.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(path.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}

func readinessGatesAreValid(s *podSpec) field.ErrorList {
	var errs field.ErrorList
	for i, gate := range s.ReadinessGates {
		errs = append(errs, resource.Invalid(s.path.Child("readinessGates").Index(i).Child("conditionType"),
			string(gate.ConditionType), validation.IsQualifiedName(string(gate.ConditionType)))...)
	}
	return errs
}

func schedulingGatesAreValid(s *podSpec) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, gate := range s.SchedulingGates {
		path := s.path.Child("schedulingGates").Index(i)
		errs = append(errs, resource.Invalid(path, gate.Name, validation.IsQualifiedName(gate.Name))...)
		if seen.Has(gate.Name) {
			errs = append(errs, field.Duplicate(path, gate.Name))
		}
		seen.Insert(gate.Name)
	}
	return errs
}

// userNamespaceIsPossible forbids a user namespace of the pod together with other
// namespaces of the host, or with block devices, whose owners cannot be mapped.
func userNamespaceIsPossible(s *podSpec) field.ErrorList {
	if s.hostUsers {
		return nil
	}
	const msg = "when `hostUsers` is false"
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		set  bool
	}{{"hostNetwork", s.HostNetwork}, {"hostPID", s.HostPID}, {"hostIPC", s.HostIPC}} {
		if f.set {
			errs = append(errs, field.Forbidden(s.path.Child(f.name), msg))
		}
	}
	for at, c := range All(s.PodSpec) {
		if len(c.VolumeDevices) > 0 {
			errs = append(errs, field.Forbidden(at.Path(s.path).Child("volumeDevices"), msg))
		}
	}
	return errs
}

// maxHostnameLength is the kernel's limit (sethostname(2)).
const maxHostnameLength = 64

func hostnameOverrideIsValid(s *podSpec) field.ErrorList {
	if s.HostnameOverride == nil {
		return nil
	}
	path, name := s.path.Child("hostnameOverride"), *s.HostnameOverride
	var errs field.ErrorList
	if s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN {
		errs = append(errs, field.Forbidden(path, "may not be specified when setHostnameAsFQDN is true"))
	}
	if s.HostNetwork {
		errs = append(errs, field.Forbidden(path, "may not be specified when hostNetwork is true"))
	}
	if len(name) > maxHostnameLength {
		errs = append(errs, field.TooLong(path, "", maxHostnameLength))
	}
	return append(errs, resource.Invalid(path, name, validation.IsDNS1123Subdomain(name))...)
}

func namesAreValid(s *podSpec) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		field, name string
		rule        func(string) []string
	}{
		{"serviceAccountName", s.ServiceAccountName, validation.IsDNS1123Subdomain},
		{"nodeName", s.NodeName, validation.IsDNS1123Subdomain},
		{"hostname", s.Hostname, validation.IsDNS1123Label},
		{"subdomain", s.Subdomain, validation.IsDNS1123Label},
	} {
		if f.name != "" {
			errs = append(errs, resource.Invalid(s.path.Child(f.field), f.name, f.rule(f.name))...)
		}
	}
	return errs
}

func activeDeadlineIsInRange(s *podSpec) field.ErrorList {
	if d := s.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		return field.ErrorList{field.Invalid(s.path.Child("activeDeadlineSeconds"), *d, validation.InclusiveRangeError(1, math.MaxInt32))}
	}
	return nil
}

func hostAliasesAreValid(s *podSpec) field.ErrorList {
	var errs field.ErrorList
	for i, alias := range s.HostAliases {
		path := s.path.Child("hostAliases").Index(i)
		errs = append(errs, resource.IP(path.Child("ip"), alias.IP)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, resource.Invalid(path.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))...)
		}
	}
	return errs
}

func classesAreValid(s *podSpec) field.ErrorList {
	var errs field.ErrorList
	if name := s.PriorityClassName; name != "" {
		errs = append(errs, resource.Invalid(s.path.Child("priorityClassName"), name, validation.IsDNS1123Subdomain(name))...)
	}
	if s.RuntimeClassName != nil {
		errs = append(errs, resource.Invalid(s.path.Child("runtimeClassName"), *s.RuntimeClassName, validation.IsDNS1123Subdomain(*s.RuntimeClassName))...)
	}
	if s.PreemptionPolicy != nil {
		errs = append(errs, resource.RequiredOneOf(s.path.Child("preemptionPolicy"), *s.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	return errs
}

func schedulingGroupIsValid(s *podSpec) field.ErrorList {
	if s.SchedulingGroup == nil {
		return nil
	}
	path := s.path.Child("schedulingGroup", "podGroupName")
	name := s.SchedulingGroup.PodGroupName
	if name == nil {
		return field.ErrorList{field.Invalid(path, name, "must specify one of: `podGroupName`")}
	}
	return resource.Invalid(path, *name, validation.IsDNS1123Subdomain(*name))
}
