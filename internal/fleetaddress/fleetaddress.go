// Package fleetaddress owns the form of a fleet's own address at its host, the path
// /apis/fleet.<domain>/v1/fleets/<name>/proxy: the API server serves its whole API
// below it, under Kubernetes' own names.
package fleetaddress

import (
	"net/url"
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
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	segments := strings.Split(strings.TrimSuffix(u.Path, "/"), "/")
	if len(segments) < 7 {
		return false
	}
	last := segments[len(segments)-6:]
	return last[0] == "apis" && strings.HasPrefix(last[1], Group+".") && last[2] == Version &&
		last[3] == Resource && last[4] != "" && last[5] == "proxy"
}
