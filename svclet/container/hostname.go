package container

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// maxHostname is the maximum length of a host name on Linux, minus the terminator.
	maxHostname = 63
	// maxFQDN is the maximum length itself: a name of 64 bytes needs no terminator.
	maxFQDN = 64
)

// Hostname returns the pod's host name and, if it has a subdomain, its domain.
func Hostname(o Options, pod *corev1.Pod) (name, domain string, err error) {
	if override := pod.Spec.HostnameOverride; override != nil {
		if problems := validation.IsDNS1123Subdomain(*override); len(problems) != 0 {
			return "", "", fmt.Errorf("pod HostnameOverride %q is not a valid DNS subdomain: %s", *override, strings.Join(problems, ";"))
		}
		name, err = truncateHostname(pod.Name, *override)
		return name, "", err
	}

	name = pod.Name
	if pod.Spec.Hostname != "" {
		if problems := validation.IsDNS1123Label(pod.Spec.Hostname); len(problems) != 0 {
			return "", "", fmt.Errorf("pod Hostname %q is not a valid DNS label: %s", pod.Spec.Hostname, strings.Join(problems, ";"))
		}
		name = pod.Spec.Hostname
	}
	if name, err = truncateHostname(pod.Name, name); err != nil {
		return "", "", err
	}
	if subdomain := pod.Spec.Subdomain; subdomain != "" {
		if problems := validation.IsDNS1123Label(subdomain); len(problems) != 0 {
			return "", "", fmt.Errorf("pod Subdomain %q is not a valid DNS label: %s", subdomain, strings.Join(problems, ";"))
		}
		domain = fmt.Sprintf("%s.%s.svc.%s", subdomain, pod.Namespace, o.ClusterDomain)
	}
	return name, domain, nil
}

// kernelHostname returns what uname reports in the pod: with setHostnameAsFQDN,
// the name and its domain.
func kernelHostname(o Options, pod *corev1.Pod) (string, error) {
	name, domain, err := Hostname(o, pod)
	if err != nil {
		return "", err
	}
	if domain == "" || pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN {
		return name, nil
	}
	fqdn := name + "." + domain
	if len(fqdn) > maxFQDN {
		return "", fmt.Errorf(
			"failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			fqdn, maxFQDN, len(fqdn))
	}
	return fqdn, nil
}

// truncateHostname truncates a name to Linux's limit.
func truncateHostname(podName, name string) (string, error) {
	if len(name) <= maxHostname {
		return name, nil
	}
	short := strings.TrimRight(name[:maxHostname], "-.")
	if short == "" {
		return "", fmt.Errorf("hostname for pod %q was invalid: %q", podName, name)
	}
	return short, nil
}
