package nodeconfig

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// RecursiveReadOnly reports whether a runtime handler of the node can make mounts
// recursively read-only (KEP-3857).
func RecursiveReadOnly(node *corev1.Node, handler string) bool {
	return ptr.Deref(features(node, handler).RecursiveReadOnlyMounts, false)
}

// UserNamespaces reports whether a runtime handler of the node gives pods user
// namespaces of their own (KEP-127).
func UserNamespaces(node *corev1.Node, handler string) bool {
	return ptr.Deref(features(node, handler).UserNamespaces, false)
}

// features returns the features of a runtime handler; none if it is not known.
func features(node *corev1.Node, handler string) corev1.NodeRuntimeHandlerFeatures {
	for _, h := range node.Status.RuntimeHandlers {
		if h.Name == handler && h.Features != nil {
			return *h.Features
		}
	}
	return corev1.NodeRuntimeHandlerFeatures{}
}
