package nodeconfig

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// RecursiveReadOnly reports whether a runtime handler of the node can make mounts
// recursively read-only (KEP-3857).
func RecursiveReadOnly(node *corev1.Node, handler string) bool {
	for _, h := range node.Status.RuntimeHandlers {
		if h.Name == handler {
			return h.Features != nil && ptr.Deref(h.Features.RecursiveReadOnlyMounts, false)
		}
	}
	return false
}
