package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/adoption"
	"svc.dev/svc/controllers/index"
)

// History creates, numbers and deletes the revisions of owners of one kind.
type History struct {
	Client client.Client
	Live   client.Reader
	Kind   schema.GroupVersionKind
}

// Owner is a set whose templates are kept.
type Owner struct {
	Object   client.Object
	Selector labels.Selector
	Template *corev1.PodTemplateSpec
	// Collisions is status.collisionCount.
	Collisions *int32
	// HashLabel is the label of revisions with the hash: by default HashLabel.
	HashLabel string
}

// Revisions are those of an owner.
type Revisions struct {
	// All are sorted by number, so that Newest, which has the owner's template, is
	// the last. The cache owns them.
	All    []*appsv1.ControllerRevision
	Newest *appsv1.ControllerRevision
	// Collisions is the new value of status.collisionCount.
	Collisions *int32
}

// Sync adopts and releases revisions of the owner, and creates that of its template.
// If an older revision has the template, because the owner was rolled back, it
// becomes the newest.
func (h *History) Sync(ctx context.Context, o Owner) (Revisions, error) {
	candidates, err := h.candidates(ctx, o.Object)
	if err != nil {
		return Revisions{}, err
	}
	all, err := adoption.Sync(ctx, adoption.Adopter{Client: h.Client, Live: h.Live, Owner: o.Object, Selector: o.Selector}, candidates)
	if err != nil {
		return Revisions{}, err
	}
	slices.SortFunc(all, byNumber)
	n := nextRevision(all, o.Template)
	if n.existing != nil {
		if n.existing.Revision != n.number {
			if n.existing, err = h.renumber(ctx, n.existing, n.number); err != nil {
				return Revisions{}, err
			}
			all = slices.DeleteFunc(all, func(r *appsv1.ControllerRevision) bool { return r.UID == n.existing.UID })
			all = append(all, n.existing)
		}
		return Revisions{All: all, Newest: n.existing, Collisions: o.Collisions}, nil
	}
	created, collisions, err := h.create(ctx, o, n.number)
	if err != nil {
		return Revisions{}, err
	}
	return Revisions{All: append(all, created), Newest: created, Collisions: collisions}, nil
}

// candidates returns the revisions that the owner controls or may adopt.
func (h *History) candidates(ctx context.Context, owner client.Object) ([]*appsv1.ControllerRevision, error) {
	var found []*appsv1.ControllerRevision
	for _, controller := range []string{string(owner.GetUID()), index.NoController} {
		var list appsv1.ControllerRevisionList
		if err := h.Client.List(ctx, &list, client.InNamespace(owner.GetNamespace()), client.UnsafeDisableDeepCopy,
			client.MatchingFields{index.ByController(&appsv1.ControllerRevision{}).Name: controller}); err != nil {
			return nil, err
		}
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	return found, nil
}

// create creates the revision of the owner's template. If its name is taken by
// another revision, it uses another one, and returns the number of collisions.
func (h *History) create(ctx context.Context, o Owner, number int64) (*appsv1.ControllerRevision, *int32, error) {
	for {
		r, err := newRevision(o, number)
		if err != nil {
			return nil, nil, err
		}
		r.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o.Object, h.Kind)}
		err = h.Client.Create(ctx, r)
		if err == nil {
			return r, o.Collisions, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, nil, fmt.Errorf("create controller revision %s: %w", klog.KObj(r), err)
		}
		var taken appsv1.ControllerRevision
		if err := h.Live.Get(ctx, client.ObjectKeyFromObject(r), &taken); err != nil {
			return nil, nil, err
		}
		template, err := Template(&taken)
		if err == nil && metav1.IsControlledBy(&taken, o.Object) && apiequality.Semantic.DeepEqual(template, o.Template) {
			return &taken, o.Collisions, nil // the response to an earlier creation was lost
		}
		o.Collisions = ptr.To(ptr.Deref(o.Collisions, 0) + 1)
		klog.FromContext(ctx).V(2).Info("Found a collision of controller revision names, will use another name", "controllerRevision", klog.KObj(r), "collisionCount", *o.Collisions)
	}
}

// renumber returns the revision with its new number.
func (h *History) renumber(ctx context.Context, r *appsv1.ControllerRevision, number int64) (*appsv1.ControllerRevision, error) {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.UID}, "revision": number})
	if err != nil {
		return nil, err
	}
	target := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	if err := h.Client.Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, data)); err != nil {
		return nil, fmt.Errorf("renumber controller revision %s: %w", klog.KObj(r), err)
	}
	return target, nil
}

// Delete deletes revisions.
func (h *History) Delete(ctx context.Context, revisions []*appsv1.ControllerRevision) error {
	for _, r := range revisions {
		klog.FromContext(ctx).V(2).Info("Deleting controller revision beyond the revision history limit", "controllerRevision", klog.KObj(r))
		target := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
		if err := h.Client.Delete(ctx, target, client.Preconditions{UID: ptr.To(r.UID)}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete controller revision %s: %w", klog.KObj(r), err)
		}
	}
	return nil
}
