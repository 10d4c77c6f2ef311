package graph

import (
	"fmt"
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// apiServer is an in-memory API server with objects, finalizers, preconditions, and a
// history of each kind.
type apiServer struct {
	rand     *rand.Rand
	objects  map[types.UID]*thing
	revision uint64
	uids     int
	history  map[schema.GroupKind][]change

	// removed are former objects, which references may name. orphaned are the UIDs of
	// objects that were deleted with the finalizer orphan, and protected are those of
	// the objects from which the collector has removed it since its start.
	removed   []*thing
	orphaned  map[types.UID]bool
	protected map[types.UID]*thing
	// awaiting are the UIDs of objects that were deleted in the foreground.
	awaiting map[types.UID]bool
	// unavailable kinds are not served, although their objects exist.
	unavailable map[schema.GroupKind]bool
}

type thing struct {
	kind schema.GroupKind
	Object
}

func (o *thing) copy() *thing {
	c := *o
	c.Owners, c.Finalizers = slices.Clone(o.Owners), slices.Clone(o.Finalizers)
	return &c
}

// change is a watch event.
type change struct {
	revision uint64
	gone     bool
	object   *thing
}

var (
	kindA     = schema.GroupKind{Kind: "A"}
	kindB     = schema.GroupKind{Group: "b.example.com", Kind: "B"}
	cluster   = schema.GroupKind{Kind: "Cluster"}
	custom    = schema.GroupKind{Group: "example.com", Kind: "Custom"}
	unwatched = schema.GroupKind{Group: "metrics.example.com", Kind: "Unwatched"}
	bogus     = schema.GroupKind{Group: "bogus.example.com", Kind: "Bogus"}
)

var watchedKinds = []schema.GroupKind{kindA, kindB, cluster, custom}

func namespacedKind(kind schema.GroupKind) bool { return kind != cluster }

func newAPIServer(r *rand.Rand) *apiServer {
	return &apiServer{
		rand: r, objects: map[types.UID]*thing{}, history: map[schema.GroupKind][]change{},
		orphaned: map[types.UID]bool{}, protected: map[types.UID]*thing{}, awaiting: map[types.UID]bool{},
		unavailable: map[schema.GroupKind]bool{},
	}
}

// find returns the object with a name.
func (w *apiServer) find(kind schema.GroupKind, namespace, name string) *thing {
	for _, o := range w.objects {
		if o.kind == kind && o.Namespace == namespace && o.Name == name {
			return o
		}
	}
	return nil
}

// any returns a random object, which depends on the random numbers only.
func (w *apiServer) any() *thing {
	if len(w.objects) == 0 {
		return nil
	}
	all := make([]types.UID, 0, len(w.objects))
	for uid := range w.objects {
		all = append(all, uid)
	}
	slices.Sort(all)
	return w.objects[all[w.rand.IntN(len(all))]]
}

func (w *apiServer) record(o *thing, gone bool) {
	if o.Deleting && slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents) {
		w.orphaned[o.UID] = true
	}
	if o.Waiting() {
		w.awaiting[o.UID] = true
	}
	trace("written: gone %v %s %+v", gone, o.kind, o.Object)
	w.history[o.kind] = append(w.history[o.kind], change{w.revision, gone, o.copy()})
}

func (w *apiServer) create(kind schema.GroupKind, owners []metav1.OwnerReference, finalizers []string) {
	names := []string{"one", "two", "three", "four"}
	o := &thing{kind: kind, Object: Object{Name: names[w.rand.IntN(len(names))], Owners: owners, Finalizers: finalizers}}
	if namespacedKind(kind) {
		o.Namespace = []string{"x", "y"}[w.rand.IntN(2)]
	}
	if w.find(kind, o.Namespace, o.Name) != nil {
		return
	}
	w.uids++
	w.revision++
	o.UID, o.Version = types.UID(fmt.Sprintf("uid-%d", w.uids)), w.revision
	w.objects[o.UID] = o
	w.record(o, false)
}

// write stores an object after how has changed it. An object that is being deleted and
// has no finalizers is removed.
func (w *apiServer) write(o *thing, how func(*thing)) {
	o = o.copy()
	how(o)
	w.revision++
	o.Version = w.revision
	if o.Deleting && len(o.Finalizers) == 0 {
		delete(w.objects, o.UID)
		w.removed = append(w.removed, o)
		w.record(o, true)
		return
	}
	w.objects[o.UID] = o
	w.record(o, false)
}

func (w *apiServer) delete(o *thing, policy metav1.DeletionPropagation) {
	if o.Deleting {
		return
	}
	w.write(o, func(o *thing) {
		o.Deleting = true
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool {
			return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
		})
		switch policy {
		case metav1.DeletePropagationForeground:
			o.Finalizers = append(o.Finalizers, metav1.FinalizerDeleteDependents)
		case metav1.DeletePropagationOrphan:
			o.Finalizers = append(o.Finalizers, metav1.FinalizerOrphanDependents)
		}
	})
}

// references returns random owner references: to objects that exist, that existed,
// and that never existed.
func (w *apiServer) references() []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for range w.rand.IntN(3) {
		o := w.any()
		if len(w.removed) > 0 && w.rand.IntN(8) == 0 {
			o = w.removed[w.rand.IntN(len(w.removed))]
		}
		if o == nil {
			break
		}
		ref := metav1.OwnerReference{APIVersion: o.kind.WithVersion("v1").GroupVersion().String(), Kind: o.kind.Kind, Name: o.Name, UID: o.UID}
		if w.rand.IntN(2) == 0 {
			ref.BlockOwnerDeletion = new(true)
		}
		switch w.rand.IntN(40) {
		case 0:
			ref.Name = "wrong"
		case 1:
			ref.APIVersion, ref.Kind = kindB.WithVersion("v1").GroupVersion().String(), kindB.Kind
		case 2:
			ref.APIVersion, ref.Kind = bogus.WithVersion("v1").GroupVersion().String(), bogus.Kind
		}
		refs = append(refs, ref)
	}
	return refs
}

// at returns the objects of a kind at a revision.
func (w *apiServer) at(kind schema.GroupKind, revision uint64) []Object {
	then := map[types.UID]*thing{}
	for _, c := range w.history[kind] {
		if c.revision > revision {
			break
		}
		if then[c.object.UID] = c.object; c.gone {
			delete(then, c.object.UID)
		}
	}
	var list []Object
	for _, o := range then {
		list = append(list, o.Object)
	}
	slices.SortFunc(list, func(a, b Object) int { return int(a.Version) - int(b.Version) })
	return list
}

// truth returns the actual effect of a reference. An owner that is being deleted in
// the foreground is deleted, even if the finalizer is removed.
func (w *apiServer) truth(o *thing, ref metav1.OwnerReference) hold {
	by := named(ref)
	if by.kind == bogus || o.Namespace == "" && namespacedKind(by.kind) {
		return unknown
	}
	owner := w.objects[ref.UID]
	switch {
	case !names(o, ref, owner):
		return dangles
	case owner.Deleting && w.awaiting[owner.UID]:
		return waits
	}
	return holds
}

// names reports whether a reference of an object names this owner: its kind, name, and
// UID, in the namespace of the object.
func names(o *thing, ref metav1.OwnerReference, owner *thing) bool {
	by, namespace := named(ref), ""
	if namespacedKind(by.kind) {
		namespace = o.Namespace
	}
	return owner != nil && owner.UID == ref.UID && owner.kind == by.kind && owner.Namespace == namespace && owner.Name == by.name
}

// perform executes an action like an API server. The error says why the collector must
// not do it.
func (w *apiServer) perform(a Action) (Result, error) {
	if w.unavailable[a.Object.Kind] || a.Object.Kind == bogus {
		return Result{Outcome: Failed}, nil
	}
	if !slices.Contains(watchedKinds, a.Object.Kind) && a.Object.Kind != unwatched {
		return Result{}, fmt.Errorf("%s: no such kind", a)
	}
	o := w.find(a.Object.Kind, a.Object.Namespace, a.Object.Name)
	switch {
	case o == nil:
		return Result{Outcome: Absent}, nil
	case a.Verb == LookUp:
		return Result{Outcome: Present, Object: o.copy().Object}, nil
	case o.UID != a.Object.UID || o.Version != a.Version:
		return Result{Outcome: Conflict}, nil
	}
	switch a.Verb {
	case Delete:
		if err := w.mayDelete(o); err != nil {
			return Result{}, fmt.Errorf("%s: %w", a, err)
		}
		w.delete(o, a.Policy)
		return Result{Outcome: Done}, nil
	case Disown:
		for _, r := range a.References {
			if err := w.mayDisown(o, r); err != nil {
				return Result{}, fmt.Errorf("%s: %w", a, err)
			}
		}
	}
	before := o.copy()
	w.write(o, func(o *thing) { patched(o, a) })
	if a.Finalizer == metav1.FinalizerOrphanDependents {
		w.protected[o.UID] = before
	}
	if after := w.objects[o.UID]; after != nil {
		return Result{Outcome: Present, Object: after.copy().Object}, nil
	}
	patched(before, a)
	before.Version = w.revision
	return Result{Outcome: Present, Object: before.Object}, nil
}

// patched returns the object after a patch.
func patched(o *thing, a Action) {
	switch a.Verb {
	case Disown:
		for _, r := range slices.Backward(a.References) {
			o.Owners = slices.Delete(slices.Clone(o.Owners), r.Index, r.Index+1)
		}
	case Unblock:
		for _, r := range a.References {
			o.Owners[r.Index].BlockOwnerDeletion = new(false)
		}
	case RemoveFinalizer:
		if o.Finalizers[a.Index] != a.Finalizer {
			panic(fmt.Sprintf("%s: it is %s", a, o.Finalizers[a.Index]))
		}
		o.Finalizers = slices.Delete(slices.Clone(o.Finalizers), a.Index, a.Index+1)
	}
}

// mayDelete returns why an object must not be deleted. An owner that has orphaned its
// dependents protects those that named it: a reference to an owner in another
// namespace has always been dangling, and the object may be deleted at any time.
func (w *apiServer) mayDelete(o *thing) error {
	if len(o.Owners) == 0 {
		return fmt.Errorf("it has no owners")
	}
	for _, ref := range o.Owners {
		switch h := w.truth(o, ref); {
		case h == holds:
			return fmt.Errorf("%s %s holds it", ref.Kind, ref.UID)
		case h == unknown:
			return fmt.Errorf("the state of its owner %s %s is unknown", ref.Kind, ref.UID)
		case names(o, ref, w.protected[ref.UID]):
			return fmt.Errorf("%s %s has orphaned it", ref.Kind, ref.UID)
		}
	}
	return nil
}

// mayDisown returns why an owner reference must not be removed.
func (w *apiServer) mayDisown(o *thing, r Reference) error {
	ref := o.Owners[r.Index]
	if ref.UID != r.UID {
		return fmt.Errorf("owner %d is %s", r.Index, ref.UID)
	}
	if h := w.truth(o, ref); (h == holds || h == unknown) && !w.orphaned[ref.UID] {
		return fmt.Errorf("%s %s holds it", ref.Kind, ref.UID)
	}
	return nil
}
