// Package fleetaddress owns the form of a fleet's own address at its host, the path
// /apis/fleet.<domain>/v1/fleets/<name>/proxy, below which the API server serves its whole
// API under Kubernetes' own names, and the names of a fleet's machines as users of the host.
package fleetaddress

import (
	"net/url"
	"slices"
	"strings"
)

const (
	// Group is the group of fleets, before the domain is added to it.
	Group = "fleet"
	// Version is the version of that group.
	Version = "v1"
	// Resource is the resource whose subresource proxy is the address.
	Resource = "fleets"
)

// Path returns the path of a fleet; group is that of fleets with the domain.
func Path(group, name string) string {
	return strings.Join([]string{"/apis", group, Version, Resource, name, "proxy"}, "/")
}

// IsAddress reports whether the URL of an API server ends in the path of a fleet.
func IsAddress(server string) bool {
	_, _, ok := Split(server)
	return ok
}

// Split returns the URL of the host and the group domain of a fleet, given the URL of the
// fleet's own address. It reports false for the URL of any other API server.
func Split(server string) (host, domain string, ok bool) {
	u, err := url.Parse(server)
	if err != nil {
		return "", "", false
	}
	segments := strings.Split(strings.TrimSuffix(u.Path, "/"), "/")
	if len(segments) < 7 {
		return "", "", false
	}
	before, last := segments[:len(segments)-6], segments[len(segments)-6:]
	domain, ofFleet := strings.CutPrefix(last[1], Group+".")
	if !ofFleet || last[0] != "apis" || last[2] != Version || last[3] != Resource || last[4] == "" || last[5] != "proxy" {
		return "", "", false
	}
	u.Path, u.RawPath = strings.Join(before, "/"), ""
	return u.String(), domain, true
}

// MachineUser is the name of the host's user that a machine of a fleet is, if it has joined
// by a token: no node of the host has such a name.
func MachineUser(domain, node string) string { return domain + ":node:" + node }

// MachineGroup is the group of the host's users that are machines of a fleet.
func MachineGroup(domain string) string { return domain + ":nodes" }

// MachineNode returns the node of a machine, given its user and the groups of it. It reports
// false for all others.
func MachineNode(user string, groups []string) (node string, ok bool) {
	domain, node, found := strings.Cut(user, ":node:")
	return node, found && node != "" && slices.Contains(groups, MachineGroup(domain))
}

// BootstrapGroup is the group of the host's tokens by which machines join a fleet. Unlike
// that of the tokens of the host's own nodes, it may only request certificates, which an
// administrator approves.
const BootstrapGroup = "system:bootstrappers:svc-machines"
