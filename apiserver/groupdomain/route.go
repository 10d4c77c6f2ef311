package groupdomain

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/fleetaddress"
)

// document is what a path asks for.
type document int

const (
	unnamed       document = iota // a path that names no group
	objects                       // of a resource
	groupList                     // all groups
	group                         // one group
	resourceList                  // the resources of a group version
	openAPIV2                     // OpenAPI of all groups
	openAPIV3List                 // the documents of OpenAPI v3
	openAPIV3                     // OpenAPI of a group version, or of a group's discovery
	fleet                         // the API of the fleet under its stored names
	unknown                       // what is not served
)

// route says what a path on the wire asks for.
type route struct {
	document document
	// path is the stored one.
	path string
	// gv is the stored group and version of objects, a group or a document.
	gv schema.GroupVersion
	// resource, name and subresource are those of objects.
	resource, name, subresource string
	// reason says why a path is unknown.
	reason string
}

// route returns what a path on the wire asks for. fleetName is the name of the fleet
// that the server serves.
func (n *Names) route(path, fleetName string) route {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case segments[0] == "api":
		return route{document: unknown, reason: n.canonical(fleetName)}
	case segments[0] == "openapi":
		return n.openAPIRoute(path, segments)
	case segments[0] != "apis":
		return route{path: path}
	case len(segments) == 1:
		return route{document: groupList, path: path}
	case !n.Owns(segments[1]):
		return route{document: unknown, reason: fmt.Sprintf("the groups of this server end with .%s; %s", n.domain, n.canonical(fleetName))}
	}
	stored := n.Stored(segments[1])
	root := "/apis/" + stored
	if stored == "" {
		root = "/api"
	}
	r := route{gv: schema.GroupVersion{Group: stored}}
	if len(segments) == 2 {
		r.document, r.path = group, root
		return r
	}
	r.gv.Version = segments[2]
	if len(segments) == 3 {
		r.document, r.path = resourceList, root+"/"+segments[2]
		return r
	}
	if stored == fleetaddress.Group && len(segments) >= 6 && segments[3] == fleetaddress.Resource && segments[5] == "proxy" {
		return n.fleetRoute(path, segments, fleetName)
	}
	return n.objectsRoute(r, root, segments[3:], strings.HasSuffix(path, "/"))
}

// FleetGroup returns the group of fleets on the wire.
func (n *Names) FleetGroup() string { return n.Public(fleetaddress.Group) }

// OfHost reports whether a stored resource of the server is one of the host's.
func (n *Names) OfHost(group, resource string) bool { return group == "" && resource == namespaces }

// canonical says where the API is served under its stored names.
func (n *Names) canonical(fleetName string) string {
	return "the API under Kubernetes' own names is at " + n.FleetPath(fleetName)
}

// FleetPath returns the path under which the API is served under its stored names.
func (n *Names) FleetPath(fleetName string) string {
	return fleetaddress.Path(n.FleetGroup(), fleetName)
}

// fleetRoute returns the route of a path below that of the fleet.
func (n *Names) fleetRoute(path string, segments []string, fleetName string) route {
	if segments[4] != fleetName {
		return route{document: unknown, reason: fmt.Sprintf("fleet %q not found, this server serves fleet %q", segments[4], fleetName)}
	}
	rest := strings.TrimPrefix(path, "/"+strings.Join(segments[:6], "/"))
	if rest == "" {
		rest = "/"
	}
	return route{document: fleet, path: rest}
}

// objectsRoute returns the route of the rest of a path after the version.
func (n *Names) objectsRoute(r route, root string, rest []string, slash bool) route {
	r.document = objects
	prefix := root + "/" + r.gv.Version
	if rest[0] == "watch" && len(rest) > 1 {
		prefix, rest = prefix+"/watch", rest[1:]
	}
	if r.gv.Group == "" && IsNamespace(rest) {
		return route{document: unknown, reason: "namespaces are the host's: ask it for namespaces of its core group"}
	}
	if rest[0] == namespaces && len(rest) > 2 {
		prefix, rest = prefix+"/"+rest[0]+"/"+rest[1], rest[2:]
	}
	r.resource = rest[0]
	if len(rest) > 1 {
		r.name = rest[1]
		if namedByGroup[schema.GroupResource{Group: r.gv.Group, Resource: r.resource}] != nil {
			rest[1] = n.toStorage().qualified(rest[1])
		}
	}
	if len(rest) > 2 {
		r.subresource = rest[2]
	}
	r.path = prefix + "/" + strings.Join(rest, "/")
	if slash {
		r.path += "/"
	}
	return r
}

// namespaces is the segment before a namespace's name in a path.
const namespaces = "namespaces"

// openAPIRoute returns the route of a document of OpenAPI.
func (n *Names) openAPIRoute(path string, segments []string) route {
	switch {
	case len(segments) == 2 && segments[1] == "v2":
		return route{document: openAPIV2, path: path}
	case len(segments) == 2 && segments[1] == "v3":
		return route{document: openAPIV3List, path: path}
	case len(segments) >= 4 && len(segments) <= 5 && segments[1] == "v3" && segments[2] == "apis" && n.Owns(segments[3]):
		gv := schema.GroupVersion{Group: n.Stored(segments[3])}
		if len(segments) == 5 {
			gv.Version = segments[4]
		}
		return route{document: openAPIV3, gv: gv, path: "/openapi/v3/" + n.storedRoot(gv)}
	case len(segments) >= 3 && (segments[2] == "api" || segments[2] == "apis"):
		return route{document: unknown, reason: fmt.Sprintf("the groups of this server end with .%s", n.domain)}
	}
	return route{path: path}
}

// storedRoot returns the stored path of a group version, or of a group, without a slash
// before it.
func (n *Names) storedRoot(gv schema.GroupVersion) string {
	root := "apis/" + gv.Group
	if gv.Group == "" {
		root = "api"
	}
	if gv.Version == "" {
		return root
	}
	return root + "/" + gv.Version
}

// IsNamespace reports whether the segments of a path after the version of the core group
// are of namespaces themselves, not of objects in one.
func IsNamespace(segments []string) bool {
	switch {
	case len(segments) == 0 || segments[0] != namespaces:
		return false
	case len(segments) <= 2:
		return true
	}
	return len(segments) == 3 && (segments[2] == "status" || segments[2] == "finalize")
}
