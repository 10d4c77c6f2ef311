package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxNameservers and the limits below are those of glibc's resolver, which API
	// validation applies too.
	maxNameservers = 3
	maxSearches    = 32
	maxSearchLine  = 2048
	// clusterSearches are the search domains of the cluster, before those of the node.
	clusterSearches = 3
	// maxResolvConf bounds how much of resolv.conf is read, in bytes.
	maxResolvConf = 10 << 20
)

// dns returns a pod's resolver configuration: that of its DNS policy, with its
// dnsConfig added, within the limits of resolvers.
func dns(in SandboxInput) (*runtimeapi.DNSConfig, error) {
	var config *runtimeapi.DNSConfig
	var err error
	switch dnsPolicy(&in.Pod.Spec) {
	case corev1.DNSNone:
		config = &runtimeapi.DNSConfig{}
	case corev1.DNSDefault:
		config, err = nodeDNS(in.Options)
	default:
		config, err = clusterDNS(in)
	}
	if err != nil {
		return nil, err
	}
	if own := in.Pod.Spec.DNSConfig; own != nil {
		config.Servers = unique(config.Servers, own.Nameservers)
		config.Searches = unique(config.Searches, own.Searches)
		for _, option := range own.Options {
			text := option.Name
			if option.Value != nil && *option.Value != "" {
				text += ":" + *option.Value
			}
			config.Options = setOption(config.Options, text)
		}
	}
	limitDNS(config, in.warn)
	return config, nil
}

func (in SandboxInput) warn(reason, message string) {
	if in.Warn != nil {
		in.Warn(reason, message)
	}
}

// UsesClusterDNS reports whether a pod's name servers are those of the cluster.
func UsesClusterDNS(spec *corev1.PodSpec) bool {
	policy := dnsPolicy(spec)
	return policy != corev1.DNSNone && policy != corev1.DNSDefault
}

// dnsPolicy returns the effective policy: on the host network, ClusterFirst means
// Default.
func dnsPolicy(spec *corev1.PodSpec) corev1.DNSPolicy {
	if spec.DNSPolicy == corev1.DNSClusterFirst && spec.HostNetwork {
		return corev1.DNSDefault
	}
	return spec.DNSPolicy
}

// nodeDNS returns the node's resolver configuration. Without a resolv.conf it is
// the C library's default, which is the local name server and no search domain.
func nodeDNS(o Options) (*runtimeapi.DNSConfig, error) {
	if o.ResolvConf != "" {
		return readResolvConf(o.ResolvConf)
	}
	config := &runtimeapi.DNSConfig{Searches: []string{"."}}
	for _, ip := range o.NodeIPs {
		local := "127.0.0.1"
		if ip.Is6() && !ip.Is4In6() {
			local = "::1"
		}
		config.Servers = append(config.Servers, local)
	}
	if len(config.Servers) == 0 {
		config.Servers = []string{"127.0.0.1"}
	}
	return config, nil
}

// clusterDNS uses only the cluster's name servers, which forward other queries.
// The node's search domains follow the cluster's.
func clusterDNS(in SandboxInput) (*runtimeapi.DNSConfig, error) {
	o := in.Options
	if len(o.ClusterDNS) == 0 {
		in.warn("MissingClusterDNS", fmt.Sprintf(
			"pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
			describe(in.Pod), corev1.DNSClusterFirst, corev1.DNSDefault))
		return nodeDNS(o)
	}
	config := &runtimeapi.DNSConfig{Servers: slices.Clone(o.ClusterDNS), Options: []string{"ndots:5"}}
	var searches []string
	if o.ResolvConf != "" {
		node, err := readResolvConf(o.ResolvConf)
		if err != nil {
			return nil, err
		}
		searches = node.Searches
	}
	if domain := o.ClusterDomain; domain != "" {
		searches = unique([]string{in.Pod.Namespace + ".svc." + domain, "svc." + domain, domain}, searches)
	}
	config.Searches = searches
	return config, nil
}

// limitDNS removes what exceeds the resolvers' limits, and warns of it.
func limitDNS(config *runtimeapi.DNSConfig, warn func(reason, message string)) {
	if len(config.Servers) > maxNameservers {
		config.Servers = config.Servers[:maxNameservers]
		warn("DNSConfigForming",
			"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "+
				strings.Join(config.Servers, " "))
	}

	searches := config.Searches
	if len(searches) > maxSearches {
		searches = searches[:maxSearches]
	}
	// glibc 2.28 aborts on a longer name.
	kept := make([]string, 0, len(searches))
	line := 0
	for _, search := range searches {
		if len(search) <= validation.DNS1123SubdomainMaxLength {
			kept = append(kept, search)
			line += len(search) + 1
		}
	}
	for line-1 > maxSearchLine {
		line -= len(kept[len(kept)-1]) + 1
		kept = kept[:len(kept)-1]
	}
	if len(kept) < len(config.Searches) {
		config.Searches = kept
		warn("DNSConfigForming",
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "+
				strings.Join(kept, " "))
	}
}

// unique concatenates two lists without duplicates.
func unique(first, second []string) []string {
	var joined []string
	for _, list := range [][]string{first, second} {
		for _, s := range list {
			if !slices.Contains(joined, s) {
				joined = append(joined, s)
			}
		}
	}
	return joined
}

// setOption adds a resolver option ("ndots:5") or replaces the one of the same
// name.
func setOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	for i, old := range options {
		if oldName, _, _ := strings.Cut(old, ":"); oldName == name {
			options = slices.Clone(options)
			options[i] = option
			return options
		}
	}
	return append(options, option)
}

func readResolvConf(path string) (*runtimeapi.DNSConfig, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the node's resolver configuration (--resolv-conf): %w", err)
	}
	defer file.Close()
	config, err := ParseResolvConf(file)
	if err != nil {
		return nil, fmt.Errorf("read the node's resolver configuration %s (--resolv-conf): %w", path, err)
	}
	return config, nil
}

// ParseResolvConf reads a resolv.conf: name servers add up, the last search line
// wins, and so does the last value of an option.
func ParseResolvConf(reader io.Reader) (*runtimeapi.DNSConfig, error) {
	content, err := io.ReadAll(io.LimitReader(reader, maxResolvConf+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxResolvConf {
		return nil, fmt.Errorf("it is longer than %d bytes", maxResolvConf)
	}
	config := &runtimeapi.DNSConfig{}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) < 2 {
				return nil, errors.New("nameserver list is empty")
			}
			config.Servers = append(config.Servers, fields[1])
		case "search":
			config.Searches = nil
			for _, domain := range fields[1:] {
				if domain != "." {
					config.Searches = append(config.Searches, strings.TrimSuffix(domain, "."))
				}
			}
		case "options":
			for _, option := range fields[1:] {
				config.Options = setOption(config.Options, option)
			}
		}
	}
	return config, nil
}

// ResolvConfProblem returns why pods cannot have all of the node's resolver configuration,
// beside the search domains of the cluster if that has a domain, or "". The messages about
// limits are kubelet's.
func ResolvConfProblem(path, clusterDomain string) string {
	config, err := readResolvConf(path)
	if err != nil {
		return err.Error()
	}
	limit := maxSearches
	if clusterDomain != "" {
		limit -= clusterSearches
	}
	switch {
	case len(config.Searches) > limit:
		return fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!", path, limit)
	case slices.ContainsFunc(config.Searches, func(search string) bool { return len(search) > validation.DNS1123SubdomainMaxLength }):
		return fmt.Sprintf("Resolv.conf file %q contains a search path which length is more than allowed %d chars!", path, validation.DNS1123SubdomainMaxLength)
	case len(strings.Join(config.Searches, " ")) > maxSearchLine:
		return fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!", path, maxSearchLine)
	}
	return ""
}

// describe returns the name of a pod as in kubelet's messages:
// <name>_<namespace>(<uid>).
func describe(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}
