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
// manifests. It returns an empty text for all others.
func (s Served) Removed(gvr schema.GroupVersionResource) string {
	for i := range s.table.Kinds {
		k := &s.table.Kinds[i]
		if k.GroupVersion() == gvr.GroupVersion() {
			if plural, _ := meta.UnsafeGuessKindToResource(k.GroupVersionKind); plural == gvr {
				return removed(s.table, k, s.release)
			}
		}
	}
	return ""
}

// RemovedKind returns the text of Served.Removed for a kind.
func RemovedKind(table *releases.Table, gvk schema.GroupVersionKind, r Release) string {
	if k := table.Kind(gvk); k != nil {
		return removed(table, k, r)
	}
	return ""
}

func removed(table *releases.Table, k *releases.Kind, r Release) string {
	if k.Served.Last >= r.inTable() {
		return ""
	}
	version := strings.TrimPrefix(k.GroupVersion().String(), "/")
	text := fmt.Sprintf("%s %s is not served since release %v", version, k.Kind, k.Served.Last+1)
	next := table.Successor(k, r.inTable())
	if next == nil {
		return text + `, and nothing replaces it: "svc convert --check" lists what to do`
	}
	if next.Kind != k.Kind {
		version = next.GroupVersion().String() + " " + next.Kind
	} else {
		version = next.GroupVersion().String()
	}
	return fmt.Sprintf(`%s: use %s; "svc convert" converts manifests`, text, version)
}
