package rollout

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/dump"
	"k8s.io/utils/ptr"
)

// hashLabel is the label that distinguishes the pods of a deployment's replica sets.
const hashLabel = appsv1.DefaultDeploymentUniqueLabelKey

// SameTemplate reports whether two templates are equal except for the label with the
// template's hash.
func SameTemplate(a, b *corev1.PodTemplateSpec) bool {
	return apiequality.Semantic.DeepEqual(withoutHash(a), withoutHash(b))
}

func withoutHash(template *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if _, ok := template.Labels[hashLabel]; !ok {
		return template
	}
	plain := *template
	plain.Labels = maps.Clone(template.Labels)
	delete(plain.Labels, hashLabel)
	return &plain
}

// Hash returns the hash of a template. collisions, if not nil, is part of the hash:
// the number of times that a name was taken by a different template.
func Hash(template *corev1.PodTemplateSpec, collisions *int32) string {
	hash := fnv.New32a()
	fmt.Fprint(hash, dump.ForHash(*template))
	if collisions != nil {
		hash.Write(binary.LittleEndian.AppendUint64(nil, uint64(uint32(*collisions))))
	}
	return rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
}

// newSet returns a replica set of size zero for the deployment's template. Its name is
// derived from the template, so that it cannot be created twice.
func newSet(d *appsv1.Deployment) *appsv1.ReplicaSet {
	hash := Hash(&d.Spec.Template, d.Status.CollisionCount)
	template := d.Spec.Template.DeepCopy()
	template.Labels = with(template.Labels, hashLabel, hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = with(selector.MatchLabels, hashLabel, hash)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: setName(d.Name, hash), Labels: maps.Clone(template.Labels)},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        ptr.To[int32](0),
			MinReadySeconds: d.Spec.MinReadySeconds,
			Selector:        selector,
			Template:        *template,
		},
	}
}

func setName(deployment, hash string) string {
	if longest := validation.DNS1123SubdomainMaxLength - len("-") - len(hash); len(deployment) > longest {
		deployment = deployment[:longest]
	}
	return deployment + "-" + hash
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}
