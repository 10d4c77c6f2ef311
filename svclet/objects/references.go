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

// references returns the ConfigMaps and Secrets that a pod refers to: pull
// secrets, variables and volumes.
func references(pod *corev1.Pod) map[reference]bool {
	named := map[reference]bool{}
	add := func(k kind, name string) {
		if name != "" {
			named[reference{k, pod.Namespace, name}] = true
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		add(secret, s.Name)
	}
	for _, c := range podspec.All(&pod.Spec) {
		inVariables(c.Env, c.EnvFrom, add)
	}
	for i := range pod.Spec.Volumes {
		inVolume(&pod.Spec.Volumes[i].VolumeSource, add)
	}
	return named
}

func inVariables(env []corev1.EnvVar, from []corev1.EnvFromSource, add func(kind, string)) {
	for i := range from {
		if s := from[i].ConfigMapRef; s != nil {
			add(configMap, s.Name)
		}
		if s := from[i].SecretRef; s != nil {
			add(secret, s.Name)
		}
	}
	for i := range env {
		if env[i].ValueFrom == nil {
			continue
		}
		if s := env[i].ValueFrom.ConfigMapKeyRef; s != nil {
			add(configMap, s.Name)
		}
		if s := env[i].ValueFrom.SecretKeyRef; s != nil {
			add(secret, s.Name)
		}
	}
}

func inVolume(source *corev1.VolumeSource, add func(kind, string)) {
	switch {
	case source.ConfigMap != nil:
		add(configMap, source.ConfigMap.Name)
	case source.Secret != nil:
		add(secret, source.Secret.SecretName)
	case source.Projected != nil:
		for i := range source.Projected.Sources {
			if s := source.Projected.Sources[i].ConfigMap; s != nil {
				add(configMap, s.Name)
			}
			if s := source.Projected.Sources[i].Secret; s != nil {
				add(secret, s.Name)
			}
		}
	}
}
