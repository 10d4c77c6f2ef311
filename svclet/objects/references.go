package objects

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/apis/podspec"
)

// kind is a kind that is watched object by object, named as in kubelet's messages.
type kind string

const (
	configMap kind = "configmap"
	secret    kind = "secret"
)

// kinds has for each kind how it is listed, and which parts of an object are kept.
var kinds = map[kind]struct {
	list func() client.ObjectList
	slim func(client.Object) (kept client.Object, immutable bool)
}{
	configMap: {
		list: func() client.ObjectList { return &corev1.ConfigMapList{} },
		slim: func(o client.Object) (client.Object, bool) {
			c := o.(*corev1.ConfigMap)
			return &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, Data: c.Data, BinaryData: c.BinaryData,
			}, c.Immutable != nil && *c.Immutable
		},
	},
	secret: {
		list: func() client.ObjectList { return &corev1.SecretList{} },
		slim: func(o client.Object) (client.Object, bool) {
			c := o.(*corev1.Secret)
			return &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, Data: c.Data, Type: c.Type,
			}, c.Immutable != nil && *c.Immutable
		},
	},
}

// reference identifies an object.
type reference struct {
	kind            kind
	namespace, name string
}

// references returns the ConfigMaps and Secrets that a pod refers to.
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
	return named
}
