package graph

import (
	"fmt"
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Identity identifies an object.
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

// Subject is what a decision is about: an object, or the existence of an owner as
// references name it.
type Subject struct {
	UID types.UID

	place unique.Handle[place]
	// owner is the zero handle for an object.
	owner unique.Handle[Identity]
}

// Namespace is that of the object or the owner.
func (s Subject) Namespace() string { return s.place.Value().namespace }

func subject(n *node) Subject { return Subject{UID: n.uid, place: n.place} }

// lookupSubject is the subject for the existence of an owner.
func lookupSubject(owner Identity) Subject {
	return Subject{owner.UID, intern(place{owner.Kind, owner.Namespace}), unique.Make(owner)}
}

// lookup returns the owner that the subject is about; false if it is about an object.
func (s Subject) lookup() (Identity, bool) {
	if s.owner == (unique.Handle[Identity]{}) {
		return Identity{}, false
	}
	return s.owner.Value(), true
}

// Verb is the kind of an action.
type Verb int

// The verbs.
const (
	Nothing Verb = iota
	// LookUp gets the object from the API server. The outcome is Present, whatever
	// the UID, or Absent if there is no object of this name. It is Failed if the
	// kind is not served.
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

// Action is a request about an object. All but LookUp must fail with a conflict if
// the UID or resource version of the object differs.
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

// String returns the action in one line.
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

// Notice is an owner reference to an object in another namespace.
type Notice struct {
	Object Identity
	// Owner is the owner as the reference names it, in the object's namespace.
	Owner Identity
}

// Outcome is the outcome of an action.
type Outcome int

// The outcomes.
const (
	// Failed proves nothing about the object; the action is to be retried.
	Failed Outcome = iota
	// Done is success of a delete.
	Done
	// Present is success of a lookup or a patch, with the object as it is now.
	Present
	// Absent: the object does not exist.
	Absent
	// Conflict: the UID or version of the object differs.
	Conflict
)

// Result is the result of an action, with the object if the outcome is Present.
type Result struct {
	Outcome Outcome
	Object  Object
}

// Requeue is how to requeue a subject after its action, apart from that Ready may
// return it.
type Requeue int

const (
	// NoRequeue does not requeue it, and resets its backoff.
	NoRequeue Requeue = iota
	// RequeueNow handles it again at once, and its backoff continues.
	RequeueNow
	// RequeueWithBackoff requeues it after a backoff.
	RequeueWithBackoff
)
