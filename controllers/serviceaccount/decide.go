package serviceaccount

import corev1 "k8s.io/api/core/v1"

// wanted reports whether a namespace has to have the service account: not while
// it is terminating, when nothing can be created in it.
func wanted(ns *corev1.Namespace) bool {
	return ns.Status.Phase == corev1.NamespaceActive && ns.DeletionTimestamp == nil
}
