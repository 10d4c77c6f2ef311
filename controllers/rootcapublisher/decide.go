package rootcapublisher

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// key is the key of the certificates in a config map.
const key = "ca.crt"

// The annotation explains the config map to users. A changed text stays.
const (
	descriptionAnnotation = "kubernetes.io/description"
	description           = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

// wanted reports whether a namespace has to have the config map: not while it is
// terminating, when nothing can be created in it.
func wanted(ns *corev1.Namespace) bool {
	return ns.Status.Phase == corev1.NamespaceActive && ns.DeletionTimestamp == nil
}

// complete sets the config map's data and annotation, and reports whether that
// changed it.
func complete(c *corev1.ConfigMap, rootCA string) bool {
	data := map[string]string{key: rootCA}
	if maps.Equal(c.Data, data) && len(c.BinaryData) == 0 && c.Annotations[descriptionAnnotation] != "" {
		return false
	}
	c.Data, c.BinaryData = data, nil
	if c.Annotations[descriptionAnnotation] == "" {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[descriptionAnnotation] = description
	}
	return true
}
