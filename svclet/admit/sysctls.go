package admit

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/node/util/sysctl"
)

const (
	maxSysctlName = 253
	sysctlSegment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
	sysctlPattern = "(" + sysctlSegment + `[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]`
)

// safeSysctls are sysctls that do not affect other pods, with the first kernel in
// which they are namespaced.
func safeSysctls() map[string]string {
	return map[string]string{
		"kernel.shm_rmid_forced":              "",
		"net.ipv4.ip_local_port_range":        "",
		"net.ipv4.tcp_syncookies":             "",
		"net.ipv4.ping_group_range":           "",
		"net.ipv4.ip_unprivileged_port_start": "",
		"net.ipv4.ip_local_reserved_ports":    "3.16",
		"net.ipv4.tcp_keepalive_time":         "4.5",
		"net.ipv4.tcp_keepalive_intvl":        "4.5",
		"net.ipv4.tcp_keepalive_probes":       "4.5",
		"net.ipv4.tcp_fin_timeout":            "4.6",
		"net.ipv4.tcp_rmem":                   "4.15",
		"net.ipv4.tcp_wmem":                   "4.15",
	}
}

// Sysctls are the sysctls that pods may set.
type Sysctls struct {
	names, prefixes map[string]sysctl.Namespace
}

// NewSysctls allows the safe sysctls that are namespaced in the kernel (its
// release as in uname -r; an invalid one counts as old), and those of
// --allowed-unsafe-sysctls: names, or patterns that end in "*".
func NewSysctls(allowedUnsafe []string, kernel string) (*Sysctls, error) {
	s := &Sysctls{names: map[string]sysctl.Namespace{}, prefixes: map[string]sysctl.Namespace{}}
	// An invalid release is nil, which is older than all.
	release, _ := version.ParseGeneric(kernel)
	for name, since := range safeSysctls() {
		if since != "" && (release == nil || release.LessThan(version.MustParseGeneric(since))) {
			continue
		}
		s.names[name], _, _ = sysctl.GetNamespace(name)
	}
	valid := regexp.MustCompile("^" + sysctlPattern + "$")
	for _, pattern := range allowedUnsafe {
		if len(pattern) > maxSysctlName || !valid.MatchString(pattern) {
			return nil, fmt.Errorf("sysctl %q must have at most %d characters and match regex %s", pattern, maxSysctlName, sysctlPattern)
		}
		namespace, name, prefix := sysctl.GetNamespace(pattern)
		switch {
		case namespace == sysctl.UnknownNamespace:
			return nil, fmt.Errorf("the sysctls %q are not known to be namespaced", name)
		case prefix:
			s.prefixes[name] = namespace
		default:
			s.names[name] = namespace
		}
	}
	return s, nil
}

// allow returns an error if a pod may not set a sysctl. In a namespace shared with
// the host it would change the host's.
func (s *Sysctls) allow(name string, hostNetwork, hostIPC bool) error {
	name = sysctl.NormalizeName(name)
	namespace, allowed := s.namespace(name)
	switch {
	case !allowed:
		return fmt.Errorf("%q not allowlisted", name)
	case namespace == sysctl.IPCNamespace && hostIPC, namespace == sysctl.NetNamespace && hostNetwork:
		return fmt.Errorf("%q not allowed with host %s enabled", name, namespace)
	default:
		return nil
	}
}

func (s *Sysctls) namespace(name string) (namespace sysctl.Namespace, allowed bool) {
	if s == nil {
		return "", false
	}
	if namespace, allowed = s.names[name]; allowed {
		return namespace, true
	}
	for prefix, namespace := range s.prefixes {
		if strings.HasPrefix(name, prefix) {
			return namespace, true
		}
	}
	return "", false
}
