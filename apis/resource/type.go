package resource

import (
	"context"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Object is what the Go type of every kind is: a pointer to a struct with
// TypeMeta and ObjectMeta.
type Object interface {
	runtime.Object
	metav1.Object
}

// Type declares a resource type whose hub is T, for example *appsv1.Deployment.
// The zero value of every field but Name is a sensible default.
//
// Functions that take obj and old may rely on both having been defaulted; they
// must not modify an object unless they are named Default or Prepare. A field
// error's path starts at the object's root ("spec", "replicas").
type Type[T Object] struct {
	// Name is the plural name in the URL, for example "deployments".
	Name string
	// Singular defaults to the kind in lower case.
	Singular string
	// ShortNames and Categories are what kubectl accepts in place of Name.
	ShortNames []string
	Categories []string
	// Namespaced is true if objects are in a namespace.
	Namespaced bool
	// Versions are the versions served beside the hub, each made by Convert or Alike.
	Versions []Version

	// NameRule validates a name; prefix is true when a generateName is
	// checked. The default is a DNS subdomain.
	NameRule func(name string, prefix bool) []string
	// AnyFinalizer lets finalizers go without a domain. Those of other kinds
	// are checked by FinalizerName.
	AnyFinalizer bool
	// Default fills unset fields of an object that a client sent or that was
	// read from storage. It is idempotent and independent of other objects.
	Default func(obj T)
	// PrepareCreate and PrepareUpdate change an object before it is validated:
	// they drop fields that clients may not set and set those that the server
	// sets. They run after what Status and Generation imply.
	PrepareCreate func(ctx context.Context, env *Env, obj T)
	PrepareUpdate func(ctx context.Context, env *Env, obj, old T)
	// Validate validates an object on create and on every update. ValidateCreate
	// has the rules for new objects only, ValidateUpdate those for changes. The
	// server validates metadata itself.
	Validate       func(obj T) field.ErrorList
	ValidateCreate func(obj T) field.ErrorList
	ValidateUpdate func(obj, old T) field.ErrorList
	// Restrict validates an object by the server's flags, whenever Validate or a
	// view's Validate runs. The flags may differ after a restart, so that a stored
	// object may no longer be valid.
	Restrict func(env *Env, obj T) field.ErrorList
	// Warn returns warnings for the client (at most 120 characters each). On
	// create old is nil.
	Warn func(obj, old T) []string

	// Status gives the kind a status subresource: the main resource ignores
	// changes of the field Status, the subresource those of everything else
	// but metadata.
	Status bool
	// StatusOnCreate lets a client set the status of a new object.
	StatusOnCreate bool
	// PrepareStatus runs before ValidateStatus, after what Status implies.
	// StatusResets are the paths of metadata ("metadata.labels") that it takes
	// from old, for field ownership.
	PrepareStatus func(env *Env, obj, old T)
	StatusResets  []string
	// StatusOnly makes an update of the status leave metadata as it is: labels,
	// annotations, finalizers and owners. Kinds that are older than this rule of
	// Kubernetes do without.
	StatusOnly     bool
	ValidateStatus func(obj, old T) field.ErrorList
	// RestrictStatus validates a status by the time of the server's clock, whenever
	// ValidateStatus runs.
	RestrictStatus func(env *Env, obj, old T) field.ErrorList
	// Generation makes metadata.generation count the changes of everything
	// outside metadata and status.
	Generation bool
	// GenerationGate is the feature gate without which Generation does not hold; empty if it
	// holds wherever the release has status.observedGeneration.
	GenerationGate string
	// Scale gives the kind a scale subresource.
	Scale *Scale[T]
	// Views are further subresources through which the same object is read and
	// updated. Actions are operations posted to an object. Connects are proxied to
	// the object's endpoint.
	Views    []View[T]
	Actions  []Action
	Connects []Connect

	// Columns are the columns of the table view. A kind without columns gets
	// Name and Created At.
	Columns []Column[T]
	// Order compares two objects, as cmp.Compare does, for the rows of a table
	// view. The default is the order of lists, that of names.
	Order func(a, b T) int
	// Fields are the field selectors beyond metadata.name and
	// metadata.namespace, by path ("spec.nodeName").
	Fields map[string]func(obj T) string

	// WatchField is the field by which most watches select objects. The watch cache
	// indexes watches by its value, so that an event is sent to the watches of its
	// object's value only. It is metadata.name, the default, or one of Fields.
	WatchField string

	// CreateOnUpdate lets a PUT create an object that does not exist.
	CreateOnUpdate bool
	// RequireVersion refuses a PUT that names no resourceVersion, unless the version that the
	// client writes is Unconditional.
	RequireVersion bool
	// GracePeriod, if set, makes deletion graceful: it returns the grace period in
	// seconds, given the one that the client requested, or nil. Zero deletes at
	// once.
	GracePeriod func(obj T, requested *int64) int64
	// Terminate changes an object when its deletion is requested, for example its
	// phase. Held reports whether a field other than metadata.finalizers still
	// prevents its removal. Both or neither are set; if they are, the kind has no
	// verb deletecollection.
	Terminate func(obj T)
	Held      func(obj T) bool
	// ReturnDeleted answers a deletion with the object instead of a Status.
	// Graceful deletions always return the object.
	ReturnDeleted bool
	// OrphanByDefault keeps dependents when a deletion names no propagation
	// policy (kinds whose first version did so).
	OrphanByDefault bool
	// TTL returns the time after its last change after which an object is removed;
	// zero, the default, is never.
	TTL func(env *Env) time.Duration

	// BeginCreate and BeginUpdate run after validation and before the write, to
	// reserve the keys that the object needs (an address, say) and to write them
	// into obj. The function they return is called once, with whether the write
	// succeeded; it is not called if that is unknown (a timeout): the periodic
	// repair of reservations corrects the pool later. A retried write calls them
	// again. In a dry run they must reserve nothing.
	BeginCreate func(ctx context.Context, env *Env, obj T, dryRun bool) (finish func(ok bool), err error)
	BeginUpdate func(ctx context.Context, env *Env, obj, old T, dryRun bool) (finish func(ok bool), err error)
	// AfterDelete runs after an object has left the storage.
	AfterDelete func(ctx context.Context, env *Env, obj T)
	// Reservations returns the keys that an object holds in the pools of
	// Env.Reservations, by pool; every pool of the kind has an entry, also for an
	// object that holds nothing. The server compares them with the pools
	// periodically and repairs the pools.
	Reservations func(obj T) map[string][]string
}

// Column is a column of the table view.
type Column[T Object] struct {
	// Name is the heading, in kubectl's manner ("Up-to-date").
	Name string
	// Type is an OpenAPI type: string, integer, number, boolean or date.
	// The default is string. Format is an OpenAPI format; "name" marks the
	// column that holds the object's name.
	Type, Format string
	// Description explains the column to users.
	Description string
	// Priority is 0 for columns that are always shown and 1 for those of the
	// wide table.
	Priority int32
	// Since and Until are the first and the last minor release of Kubernetes 1 that has
	// the column; zero is no bound.
	Since, Until int
	// Value returns the cell: a string, an int64, a bool, a metav1.Time, of which
	// the time since then is shown, or a func(now time.Time) string.
	Value func(obj T) any
}

// Scale says how the scale subresource (autoscaling/v1 Scale) reads and writes
// an object.
type Scale[T Object] struct {
	// Replicas returns the address of the field with the desired number.
	Replicas func(obj T) **int32
	// Current returns the number of replicas that exist.
	Current func(obj T) int32
	// Selector selects the replicas; nil is an empty selector.
	Selector func(obj T) *metav1.LabelSelector
}

// View is a subresource through which the same object is read (GET) and
// changed (PUT, and PATCH unless NoPatch), for example a namespace's finalize.
type View[T Object] struct {
	Name    string
	NoPatch bool
	// Prepare copies from old all that the view may not change.
	Prepare  func(env *Env, obj, old T)
	Validate func(obj, old T) field.ErrorList
	// Resets are the paths that Prepare takes from old, for field ownership;
	// a path is dotted ("spec", "metadata.labels").
	Resets []string
}

// Action is an operation posted to an object, for example a pod's eviction.
type Action struct {
	Name string
	// Input makes an empty body.
	Input func() runtime.Object
	// InputVersions are the other versions in which a body may come, each made
	// by ConvertInput.
	InputVersions []InputVersion
	// Default, unless nil, fills unset fields of a body when it is decoded.
	Default func(input runtime.Object)
	// Prepare, unless nil, runs before validating admission, which sees what it sets in the
	// input. Its errors end the request.
	Prepare func(ctx context.Context, env *Env, req ActionRequest) error
	// Run performs the action on the named object.
	Run func(ctx context.Context, env *Env, req ActionRequest) (runtime.Object, error)
}

// ActionRequest is one call of an Action.
type ActionRequest struct {
	Namespace, Name string
	Input           runtime.Object
	DryRun          bool
}

// Virtual declares a type that cannot be stored: its objects are posted and
// answered, for example core/v1 Binding.
type Virtual[T Object] struct {
	Name       string
	Singular   string
	Namespaced bool
	// Versions are the versions in which an object may be posted beside the hub.
	Versions []Version
	// Run answers a posted object.
	Run func(ctx context.Context, env *Env, obj T, dryRun bool) (runtime.Object, error)
}

// scaleOf reads an object's scale.
func (s *Scale[T]) scaleOf(obj T) (*autoscalingv1.Scale, error) {
	selector := ""
	if s.Selector != nil {
		if ls := s.Selector(obj); ls != nil {
			sel, err := metav1.LabelSelectorAsSelector(ls)
			if err != nil {
				return nil, err
			}
			selector = sel.String()
		}
	}
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              obj.GetName(),
			Namespace:         obj.GetNamespace(),
			UID:               obj.GetUID(),
			ResourceVersion:   obj.GetResourceVersion(),
			CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Status: autoscalingv1.ScaleStatus{Replicas: s.Current(obj), Selector: selector},
	}
	if replicas := *s.Replicas(obj); replicas != nil {
		scale.Spec.Replicas = *replicas
	}
	return scale, nil
}
