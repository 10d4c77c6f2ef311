package container

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/runtime"
)

// SandboxInput is everything that a sandbox's configuration depends on.
type SandboxInput struct {
	Options Options
	Pod     *corev1.Pod
	// Attempt counts the pod's sandboxes from 0.
	Attempt uint32
	// CgroupParent is the pod's cgroup in the notation of the runtime's cgroup driver.
	CgroupParent string
	// UserNamespace is the pod's own (hostUsers: false), if the runtime supports it.
	// The default is the node's.
	UserNamespace *runtimeapi.UserNamespace
	// SupplementalGroups are the groups that the pod's volumes require.
	SupplementalGroups []int64
	// Warn, if set, is called with warnings for an event about the pod.
	Warn func(reason, message string)
}

// Sandbox returns the configuration of a pod's sandbox.
func Sandbox(in SandboxInput) (*runtimeapi.PodSandboxConfig, error) {
	pod := in.Pod
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: in.Attempt,
		},
		LogDirectory: LogDirectory(in.Options, pod),
		Labels:       runtime.SandboxLabels(pod),
		Annotations:  runtime.SandboxAnnotations(pod),
	}
	var err error
	if config.DnsConfig, err = dns(in); err != nil {
		return nil, err
	}
	if !pod.Spec.HostNetwork {
		if config.Hostname, err = kernelHostname(in.Options, pod); err != nil {
			return nil, err
		}
	}
	for i := range pod.Spec.Containers {
		config.PortMappings = append(config.PortMappings, portMappings(pod.Spec.Containers[i].Ports)...)
	}
	if config.Linux, err = linuxSandbox(in); err != nil {
		return nil, err
	}
	return config, nil
}

// LogDirectory returns the directory of a pod's logs:
// <PodLogs>/<namespace>_<name>_<uid>.
func LogDirectory(o Options, pod *corev1.Pod) string {
	return filepath.Join(o.podLogs(), pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// LogPath returns the file of a container's log within the pod's log directory.
func LogPath(container string, attempt uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}

// portMappings returns the port mappings of a container; of ports that are equal
// or have the same name, the first one counts.
func portMappings(ports []corev1.ContainerPort) []*runtimeapi.PortMapping {
	var mappings []*runtimeapi.PortMapping
	names := map[string]bool{}
	for _, port := range ports {
		name := port.Name
		if name == "" {
			name = fmt.Sprintf("%s-%s-%s:%d:%d", addressFamily(port.HostIP), port.Protocol, port.HostIP, port.ContainerPort, port.HostPort)
		}
		if names[name] {
			continue
		}
		names[name] = true
		mappings = append(mappings, &runtimeapi.PortMapping{
			Protocol:      protocol(port.Protocol),
			ContainerPort: port.ContainerPort,
			HostPort:      port.HostPort,
			HostIp:        port.HostIP,
		})
	}
	return mappings
}

func addressFamily(ip string) string {
	switch {
	case ip == "":
		return "any"
	case netutils.IsIPv6String(ip):
		return "v6"
	default:
		return "v4"
	}
}

func protocol(p corev1.Protocol) runtimeapi.Protocol {
	if value, known := runtimeapi.Protocol_value[strings.ToUpper(string(p))]; known {
		return runtimeapi.Protocol(value)
	}
	return runtimeapi.Protocol_TCP
}

func linuxSandbox(in SandboxInput) (*runtimeapi.LinuxPodSandboxConfig, error) {
	security, err := sandboxSecurity(in)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent:    in.CgroupParent,
		SecurityContext: security,
		Sysctls:         sysctls(in.Options.DefaultSysctls, in.Pod),
		Overhead:        overhead(in.Options, in.Pod),
		Resources:       sandboxResources(in.Options, in.Pod),
	}, nil
}

// sysctls returns the pod's sysctls, with dots, and the defaults of the node for those of
// namespaces that are the pod's own. The node's admission decides which ones a pod may set.
func sysctls(defaults map[string]string, pod *corev1.Pod) map[string]string {
	if pod.Spec.SecurityContext == nil && len(defaults) == 0 {
		return nil
	}
	values := map[string]string{}
	for name, value := range defaults {
		if name = sysctl.NormalizeName(name); ownSysctl(name, pod) {
			values[name] = value
		}
	}
	if pod.Spec.SecurityContext == nil {
		return values
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		values[sysctl.NormalizeName(s.Name)] = s.Value
	}
	return values
}

// SysctlNamespaced reports whether a sysctl is of a namespace that pods can have of their own.
func SysctlNamespaced(name string) bool {
	namespace, name, _ := sysctl.GetNamespace(name)
	return namespace != sysctl.UnknownNamespace || name == hostDomain || strings.HasPrefix(name, userSysctls)
}

// The sysctls of the namespaces UTS and user.
const (
	hostDomain  = "kernel.domainname"
	userSysctls = "user."
)

// ownSysctl reports whether a sysctl is of a namespace that the pod does not share with the
// node. Pods on the host's network have its names, too.
func ownSysctl(name string, pod *corev1.Pod) bool {
	namespace, _, _ := sysctl.GetNamespace(name)
	switch {
	case namespace == sysctl.NetNamespace, name == hostDomain:
		return !pod.Spec.HostNetwork
	case namespace == sysctl.IPCNamespace:
		return !pod.Spec.HostIPC
	case strings.HasPrefix(name, userSysctls):
		return !ptr.Deref(pod.Spec.HostUsers, true)
	}
	return false
}

func sandboxSecurity(in SandboxInput) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	namespaces, err := namespaces(in.Pod, in.UserNamespace)
	if err != nil {
		return nil, err
	}
	security := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces,
		Privileged:       anyPrivileged(&in.Pod.Spec),
		// The sandbox has only the pause process, for which the runtime's profile is right
		// whatever the containers' profile is.
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	sc := in.Pod.Spec.SecurityContext
	if sc == nil {
		return security, nil
	}
	security.RunAsUser = int64Value(sc.RunAsUser)
	security.RunAsGroup = int64Value(sc.RunAsGroup)
	security.SelinuxOptions = selinuxOptions(sc.SELinuxOptions)
	security.SupplementalGroups = supplementalGroups(sc, in.SupplementalGroups)
	security.SupplementalGroupsPolicy, err = supplementalGroupsPolicy(sc)
	return security, err
}

func anyPrivileged(spec *corev1.PodSpec) bool {
	for _, c := range podspec.All(spec) {
		if sc := c.SecurityContext; sc != nil && sc.Privileged != nil && *sc.Privileged {
			return true
		}
	}
	return false
}
