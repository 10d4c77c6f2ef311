package garbagecollector

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/controllers/discovery"
)

// wanted returns the resource of each kind. Groups whose discovery fails keep their
// last resources. A kind with several resources is left out, as an owner reference
// does not say which of them it means.
func wanted(found discovery.Snapshot, ignored map[schema.GroupKind]bool) map[schema.GroupKind]discovery.Resource {
	resources := append([]discovery.Resource(nil), found.Resources...)
	for _, failure := range found.Failed {
		resources = append(resources, failure.Last...)
	}
	wanted := map[schema.GroupKind]discovery.Resource{}
	ambiguous := map[schema.GroupKind]bool{}
	for _, r := range resources {
		kind := kindOf(r)
		if strings.Contains(r.Resource, "/") || !r.Can("get") {
			continue
		}
		switch other, ok := wanted[kind]; {
		case !ok, collectable(r, ignored) && !collectable(other, ignored):
			wanted[kind] = r
			ambiguous[kind] = false
		case collectable(r, ignored) == collectable(other, ignored) && r.GroupResource() != other.GroupResource():
			ambiguous[kind] = true
		}
	}
	for kind, is := range ambiguous {
		if is {
			delete(wanted, kind)
		}
	}
	return wanted
}

func kindOf(r discovery.Resource) schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// collectable reports whether objects of the resource can be collected. Only such
// resources are watched.
func collectable(r discovery.Resource, ignored map[schema.GroupKind]bool) bool {
	return r.Can("list", "watch", "delete") && !ignored[kindOf(r)]
}
