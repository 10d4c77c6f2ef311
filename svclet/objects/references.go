package objects

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/apis/podspec"
)

// kind is what is watched at once, named as in kubelet's messages: one object or, of trust
// bundles, all of a signer.
type kind string

const (
	configMap     kind = "configmap"
	secret        kind = "secret"
	trustBundle   kind = "clustertrustbundle"
	signerBundles kind = "clustertrustbundles of signer"
)

// kinds has for each kind how it is listed, by which field, and which parts of an object
// are kept.
var kinds = map[kind]struct {
	list  func() client.ObjectList
	older []func() client.ObjectList
	field string
	slim  func(client.Object) (kept client.Object, immutable bool)
}{
	configMap: {
		list:  func() client.ObjectList { return &corev1.ConfigMapList{} },
		field: metav1.ObjectNameField,
		slim: func(o client.Object) (client.Object, bool) {
			c := o.(*corev1.ConfigMap)
			return &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, Data: c.Data, BinaryData: c.BinaryData,
			}, c.Immutable != nil && *c.Immutable
		},
	},
	secret: {
		list:  func() client.ObjectList { return &corev1.SecretList{} },
		field: metav1.ObjectNameField,
		slim: func(o client.Object) (client.Object, bool) {
			c := o.(*corev1.Secret)
			return &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, Data: c.Data, Type: c.Type,
			}, c.Immutable != nil && *c.Immutable
		},
	},
	trustBundle:   {list: trustBundles, older: olderTrustBundles, field: metav1.ObjectNameField, slim: slimBundle},
	signerBundles: {list: trustBundles, older: olderTrustBundles, field: "spec.signerName", slim: slimBundle},
}

// reference identifies what is watched at once. name is the value of the kind's field.
type reference struct {
	kind            kind
	namespace, name string
}

// references returns the ConfigMaps, Secrets and trust bundles that a pod refers to.
func references(pod *corev1.Pod) map[reference]bool {
	named := map[reference]bool{}
	for ref := range podspec.References(pod) {
		switch ref.Kind {
		case podspec.ConfigMap:
			named[reference{configMap, pod.Namespace, ref.Name}] = true
		case podspec.Secret:
			named[reference{secret, pod.Namespace, ref.Name}] = true
		}
	}
	for i := range pod.Spec.Volumes {
		projected := pod.Spec.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for _, source := range projected.Sources {
			if source.ClusterTrustBundle != nil {
				named[bundleReference(source.ClusterTrustBundle)] = true
			}
		}
	}
	return named
}
