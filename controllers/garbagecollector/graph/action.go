package graph

import (
	"fmt"
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Identity is what finds an object, and tells it from others of that name.
type Identity struct {
	Kind            schema.GroupKind
	Namespace, Name string
	UID             types.UID
}

// String names the object for logs.
func (i Identity) String() string {
	at := i.Name
	if i.Namespace != "" {
		at = i.Namespace + "/" + i.Name
	}
	return fmt.Sprintf("%s %s (%s)", i.Kind, at, i.UID)
}

// Subject is something that there is to decide about: an object, or whether
// there is an owner as references name it.
type Subject struct {
	UID types.UID

	place unique.Handle[place]
	// owner is the zero handle for an object.
	owner unique.Handle[Identity]
}

// Namespace is where the object or the owner is.
func (s Subject) Namespace() string { return s.place.Value().namespace }

func subject(n *node) Subject { return Subject{UID: n.uid, place: n.place} }

// claimed is the subject whether there is an owner.
func claimed(owner Identity) Subject {
	return Subject{owner.UID, intern(place{owner.Kind, owner.Namespace}), unique.Make(owner)}
}

// claims is the owner that the subject is about; false if it is about an object.
func (s Subject) claims() (Identity, bool) {
	if s.owner == (unique.Handle[Identity]{}) {
		return Identity{}, false
	}
	return s.owner.Value(), true
}

// Verb is what to do.
type Verb int

// What may have to be done.
const (
	Nothing Verb = iota
	// LookUp gets the object at the API server. The answer is Present, whatever
	// the UID found, or Absent if the API server says that there is no such
	// object. That the kind is not served there is a failure.
	LookUp
	// Delete deletes the object with a propagation policy.
	Delete
	// Disown removes owner references from the object.
	Disown
	// Unblock sets blockOwnerDeletion to false in owner references.
	Unblock
	// RemoveFinalizer removes one of the collector's finalizers.
	RemoveFinalizer
)

// Action is something to do with an object. All but LookUp must fail with a
// conflict if its UID or version is another.
type Action struct {
	Verb    Verb
	Object  Identity
	Version uint64
	// Policy is for Delete.
	Policy metav1.DeletionPropagation
	// References are for Disown and Unblock, in ascending order.
	References []Reference
	// Finalizer and Index, its place in the list, are for RemoveFinalizer.
	Finalizer string
	Index     int

	epoch, lookup uint64
}

// Reference is an owner reference by its place in the list.
type Reference struct {
	Index int
	UID   types.UID
}

// String tells the action in one line.
func (a Action) String() string {
	object := a.Object.String()
	if a.Version != 0 {
		object += fmt.Sprintf(" at %d", a.Version)
	}
	switch a.Verb {
	case Nothing:
		return "nothing"
	case LookUp:
		return "look up " + object
	case Delete:
		return fmt.Sprintf("delete %s: %s", object, a.Policy)
	case Disown:
		return fmt.Sprintf("remove owners %s from %s", refs(a.References), object)
	case Unblock:
		return fmt.Sprintf("unset blockOwnerDeletion of owners %s in %s", refs(a.References), object)
	case RemoveFinalizer:
		return fmt.Sprintf("remove finalizer %d %s from %s", a.Index, a.Finalizer, object)
	}
	return fmt.Sprintf("verb %d", a.Verb)
}

func refs(references []Reference) string {
	var s []string
	for _, r := range references {
		s = append(s, fmt.Sprintf("%d (%s)", r.Index, r.UID))
	}
	return strings.Join(s, ", ")
}

// Notice tells that an object names an owner that exists in another namespace
// only.
type Notice struct {
	Object Identity
	// Owner is where the reference would have it.
	Owner Identity
}

// Outcome is how an action went.
type Outcome int

// The ways in which an action may go.
const (
	// Failed says nothing about the object; the action is to be tried again.
	Failed Outcome = iota
	// Done is success of a delete.
	Done
	// Present is success of a lookup or a patch, with the object as it is now.
	Present
	// Absent tells that there is no such object.
	Absent
	// Conflict tells that the object has another UID or version.
	Conflict
)

// Result is how an action went, with the object if the outcome is Present.
type Result struct {
	Outcome Outcome
	Object  Object
}

// Again tells when the subject is to be looked at again, beside when it is
// ready.
type Again int

const (
	// Settled means not at all.
	Settled Again = iota
	// Soon means that it is ready, and not done with.
	Soon
	// Later means after a pause that grows with each time.
	Later
)
