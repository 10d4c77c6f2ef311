package release

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/releases"
)

// Removed returns what to tell a client that requests a resource in a version which an
// earlier release has removed: what replaces it, and the command that converts
// manifests. It returns an empty text for all others. public returns the name by which
// the client knows a group.
func (s Served) Removed(gvr schema.GroupVersionResource, public func(group string) string) string {
	for i := range s.table.Kinds {
		k := &s.table.Kinds[i]
		if k.GroupVersion() == gvr.GroupVersion() {
			if plural, _ := meta.UnsafeGuessKindToResource(k.GroupVersionKind); plural == gvr {
				return removed(s.table, k, s.release, public)
			}
		}
	}
	return ""
}

// RemovedKind returns the text of Served.Removed for a kind.
func RemovedKind(table *releases.Table, gvk schema.GroupVersionKind, r Release) string {
	if k := table.Kind(gvk); k != nil {
		return removed(table, k, r, func(group string) string { return group })
	}
	return ""
}

func removed(table *releases.Table, k *releases.Kind, r Release, public func(group string) string) string {
	if k.Served.Last >= r.inTable() {
		return ""
	}
	name := func(gv schema.GroupVersion) string {
		return strings.TrimPrefix(schema.GroupVersion{Group: public(gv.Group), Version: gv.Version}.String(), "/")
	}
	version := name(k.GroupVersion())
	text := fmt.Sprintf("%s %s is not served since release %v", version, k.Kind, k.Served.Last+1)
	next := table.Successor(k, r.inTable())
	if next == nil {
		return text + `, and nothing replaces it: "svc convert --check" lists what to do`
	}
	if next.Kind != k.Kind {
		version = name(next.GroupVersion()) + " " + next.Kind
	} else {
		version = name(next.GroupVersion())
	}
	return fmt.Sprintf(`%s: use %s; "svc convert" converts manifests`, text, version)
}
