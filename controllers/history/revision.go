// Package history owns the controller revisions of stateful sets and daemon sets:
// the pod templates that a set has had, which kubectl rollout history shows and
// kubectl rollout undo restores.
package history

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
)

// longestPrefix is the length to which the name of a set is cut in the names of its
// revisions, as in Kubernetes.
const longestPrefix = 223

// patch is the data of a revision: a strategic merge patch that restores the pod
// template of a set.
type patch struct {
	Spec struct {
		Template map[string]any `json:"template"`
	} `json:"spec"`
}

// Data returns the data of the revision for a pod template.
func Data(template *corev1.PodTemplateSpec) ([]byte, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	var p patch
	if err := json.Unmarshal(raw, &p.Spec.Template); err != nil {
		return nil, err
	}
	p.Spec.Template["$patch"] = "replace"
	return json.Marshal(p)
}

// Template returns the pod template of a revision.
func Template(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var p struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &p); err != nil {
		return nil, fmt.Errorf("data of controller revision %s/%s: %w", r.Namespace, r.Name, err)
	}
	return &p.Spec.Template, nil
}

// Hash returns the hash of a revision's data. collisions, if not nil, is part of
// the hash: the number of times that a name was taken by a different revision.
func Hash(data []byte, collisions *int32) string {
	hash := fnv.New32a()
	hash.Write(data)
	if collisions != nil {
		hash.Write(binary.LittleEndian.AppendUint32(nil, uint32(*collisions)))
	}
	return rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
}

// HashLabel is the label of a revision that has the hash of its data.
const HashLabel = "controller.kubernetes.io/hash"

// next is what has to be done so that the newest revision has the template of a set.
type next struct {
	// existing is the revision with the template, or nil if it must be created.
	existing *appsv1.ControllerRevision
	// number is that of the newest revision.
	number int64
}

// nextRevision decides about the revisions of a set, which are sorted by number.
func nextRevision(revisions []*appsv1.ControllerRevision, template *corev1.PodTemplateSpec) next {
	n := next{number: 1}
	if len(revisions) > 0 {
		n.number = revisions[len(revisions)-1].Revision + 1
	}
	for i, r := range slices.Backward(revisions) {
		// A revision that cannot be read equals no template.
		if t, err := Template(r); err == nil && apiequality.Semantic.DeepEqual(t, template) {
			n.existing = r
			if i == len(revisions)-1 {
				n.number = r.Revision
			}
			break
		}
	}
	return n
}

// newRevision returns the revision of the owner's template with that number.
func newRevision(o Owner, number int64) (*appsv1.ControllerRevision, error) {
	data, err := Data(o.Template)
	if err != nil {
		return nil, err
	}
	hash := Hash(data, o.Collisions)
	name := o.Object.GetName()
	r := &appsv1.ControllerRevision{Revision: number}
	r.Namespace, r.Name = o.Object.GetNamespace(), name[:min(len(name), longestPrefix)]+"-"+hash
	r.Labels = maps.Clone(o.Template.Labels)
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	r.Labels[cmp.Or(o.HashLabel, HashLabel)] = hash
	r.Annotations = maps.Clone(o.Object.GetAnnotations())
	delete(r.Annotations, corev1.LastAppliedConfigAnnotation)
	r.Data.Raw = data
	return r, nil
}

// Beyond returns the revisions, which are sorted by number, that are beyond the
// limit of old ones: the oldest first. Those that are in use are neither counted nor
// returned. A negative limit keeps all.
func Beyond(revisions []*appsv1.ControllerRevision, inUse func(*appsv1.ControllerRevision) bool, limit *int32) []*appsv1.ControllerRevision {
	old := slices.DeleteFunc(slices.Clone(revisions), inUse)
	keep := int(ptr.Deref(limit, defaultLimit))
	if keep < 0 || len(old) <= keep {
		return nil
	}
	return old[:len(old)-keep]
}

// defaultLimit is the default of spec.revisionHistoryLimit.
const defaultLimit = 10

// byNumber orders revisions by their number; those with the same number, which two
// instances have created at the same time, by their age and name.
func byNumber(a, b *appsv1.ControllerRevision) int {
	return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}
