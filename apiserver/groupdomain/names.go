package groupdomain

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"svc.dev/svc/apis"
)

const (
	// kubernetes is the domain of Kubernetes' own groups.
	kubernetes = "k8s.io"
	// defaultDomain is the domain whose spelling filter alias always accepts.
	defaultDomain = "svc.dev"
	// core is the name of the core group, which is empty in storage.
	core = "core"
	// host is the end of the stored name of a group of the host. It keeps an owner
	// reference to the host's apps/v1 apart from one to the fleet's.
	host = ".host.svc.dev"
)

// Names translates the names of API groups between what is stored, which is
// Kubernetes' names, and what is on the wire: G without ".k8s.io", followed by the
// group domain (document 1; ARCHITECTURE section 1). The core group is
// core.<domain>.
type Names struct {
	domain string
	stored map[string]string // of the built-in groups, by their names without domain
}

// New returns the names of a domain. A group that is not of a compiled-in kind is that of
// a CustomResourceDefinition, whose public name is its name and the domain.
func New(domain string) (*Names, error) {
	if err := Validate(domain); err != nil {
		return nil, err
	}
	builtIn := []string{apiextensionsv1.GroupName, apiregistrationv1.GroupName}
	for _, kind := range apis.Kinds() {
		for _, gvk := range kind.GVKs() {
			builtIn = append(builtIn, gvk.Group)
		}
	}
	n := &Names{domain: domain, stored: map[string]string{}}
	for _, group := range builtIn {
		n.stored[short(group)] = group
	}
	return n, nil
}

// Validate returns an error if the domain cannot be the group domain of an
// aggregated server.
func Validate(domain string) error {
	if errs := validation.IsDNS1123Subdomain(domain); len(errs) > 0 {
		return fmt.Errorf("%q is not a domain: %s", domain, errs[0])
	}
	if !strings.Contains(domain, ".") {
		return fmt.Errorf("%q has one label only, its groups could be mistaken for Kubernetes' own; choose a domain that you own, as svc.example.com", domain)
	}
	if domain == kubernetes || strings.HasSuffix(domain, "."+kubernetes) {
		return fmt.Errorf("%q belongs to Kubernetes, whose groups the host serves itself; choose a domain that you own, as svc.example.com", domain)
	}
	return nil
}

// short returns the name of a built-in group without Kubernetes' domain.
func short(group string) string {
	if group == "" {
		return core
	}
	return strings.TrimSuffix(group, "."+kubernetes)
}

// Domain returns the group domain.
func (n *Names) Domain() string { return n.domain }

// Owns reports whether a group, as on the wire, is one of the domain's.
func (n *Names) Owns(group string) bool {
	name, ok := strings.CutSuffix(group, "."+n.domain)
	return ok && name != ""
}

// Public returns the name on the wire of a stored group.
func (n *Names) Public(group string) string {
	if name, ok := strings.CutSuffix(group, host); ok {
		if name == core {
			return ""
		}
		return name
	}
	name := short(group)
	if n.stored[name] != group {
		name = group
	}
	return name + "." + n.domain
}

// Stored returns the name in storage of a group on the wire. A group outside the
// domain is one of the host's.
func (n *Names) Stored(group string) string {
	name, ok := strings.CutSuffix(group, "."+n.domain)
	if !ok || name == "" { // "" in storage is the core group
		if group == "" {
			group = core
		}
		return group + host
	}
	if builtIn, ok := n.stored[name]; ok {
		return builtIn
	}
	return name
}

// direction is one of the two translations of a group.
type direction struct {
	names *Names
	group func(group string) string // returns the translation of a group
}

// toWire returns the translation of what is stored.
func (n *Names) toWire() direction { return direction{n, n.Public} }

// toStorage returns the translation of what is on the wire.
func (n *Names) toStorage() direction { return direction{n, n.Stored} }

// apiVersion translates a group and version as in apiVersion.
func (d direction) apiVersion(apiVersion string) string {
	group, version, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group, version = "", apiVersion
	}
	if version == "" {
		return apiVersion
	}
	if group = d.group(group); group == "" {
		return version
	}
	return group + "/" + version
}

// qualified translates the group in a name that ends with one, as the name of a
// CustomResourceDefinition (widgets.example.com) or of an APIService (v1.apps).
func (d direction) qualified(name string) string {
	first, group, ok := strings.Cut(name, ".")
	if !ok {
		return name
	}
	return first + "." + d.group(group)
}
