package resource

import (
	"context"
	"reflect"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Declaration is a Type, a Virtual or a Computed.
type Declaration interface {
	// Kind returns the declaration with its Go type erased.
	Kind() *Kind
}

// Kind is a declaration with its Go type erased. Its functions are never nil
// unless their comment says so. Fields without a comment are those of Type.
type Kind struct {
	// Hub is the group, version and kind of the hub.
	Hub        schema.GroupVersionKind
	Name       string
	Singular   string
	ShortNames []string
	Categories []string
	Namespaced bool
	Versions   []Version

	NameRule       func(name string, prefix bool) []string
	AnyFinalizer   bool
	Default        func(obj runtime.Object)
	PrepareCreate  func(ctx context.Context, env *Env, obj runtime.Object)
	PrepareUpdate  func(ctx context.Context, env *Env, obj, old runtime.Object)
	Validate       func(obj runtime.Object) field.ErrorList
	ValidateCreate func(obj runtime.Object) field.ErrorList
	ValidateUpdate func(obj, old runtime.Object) field.ErrorList
	Restrict       func(env *Env, obj runtime.Object) field.ErrorList
	// Warn is given a nil interface for old on create.
	Warn func(obj, old runtime.Object) []string

	Status         bool
	StatusOnCreate bool
	PrepareStatus  func(env *Env, obj, old runtime.Object)
	StatusResets   []string
	StatusOnly     bool
	ValidateStatus func(obj, old runtime.Object) field.ErrorList
	RestrictStatus func(env *Env, obj, old runtime.Object) field.ErrorList
	Generation     bool
	GenerationGate string
	// Scale is nil for a kind that does not scale.
	Scale    *KindScale
	Views    []KindView
	Actions  []Action
	Connects []Connect

	Columns []KindColumn
	// Order is nil where rows are in the order of lists.
	Order  func(a, b runtime.Object) int
	Fields map[string]func(obj runtime.Object) string
	// WatchField is never empty.
	WatchField string

	CreateOnUpdate bool
	RequireVersion bool
	// GracePeriod, Terminate, Held, BeginCreate, BeginUpdate, AfterDelete and
	// Reservations are nil where the declaration has none.
	GracePeriod     func(obj runtime.Object, requested *int64) int64
	Terminate       func(obj runtime.Object)
	Held            func(obj runtime.Object) bool
	ReturnDeleted   bool
	OrphanByDefault bool
	TTL             func(env *Env) time.Duration // or nil
	BeginCreate     func(ctx context.Context, env *Env, obj runtime.Object, dryRun bool) (func(ok bool), error)
	BeginUpdate     func(ctx context.Context, env *Env, obj, old runtime.Object, dryRun bool) (func(ok bool), error)
	AfterDelete     func(ctx context.Context, env *Env, obj runtime.Object)
	Reservations    func(obj runtime.Object) map[string][]string

	// Answer is set for a virtual type, and all of storage's functions are nil.
	Answer func(ctx context.Context, env *Env, obj runtime.Object, dryRun bool) (runtime.Object, error)
	// Computed is set for a computed type, and all of storage's functions are nil.
	Computed *KindComputed

	goType reflect.Type
}

// KindScale is Scale with its type erased.
type KindScale struct {
	Get func(obj runtime.Object) (*autoscalingv1.Scale, error)
	Set func(obj runtime.Object, replicas int32)
}

// KindView is View with its type erased.
type KindView struct {
	Name     string
	NoPatch  bool
	Prepare  func(env *Env, obj, old runtime.Object)
	Validate func(obj, old runtime.Object) field.ErrorList
	// Restrict is the kind's Restrict, or RestrictStatus for the status, which is
	// a view too.
	Restrict func(env *Env, obj, old runtime.Object) field.ErrorList
	Resets   []string
}

// KindComputed are the functions of Computed with its type erased.
type KindComputed struct {
	Get  func(ctx context.Context, env *Env, namespace, name string) (runtime.Object, error)
	List func(ctx context.Context, env *Env, selection Selection) ([]runtime.Object, error)
}

// KindColumn is Column with its type erased.
type KindColumn struct {
	Name, Type, Format, Description string
	Priority                        int32
	Since, Until                    int
	Value                           func(obj runtime.Object) any
}

// In reports whether minor release of Kubernetes 1 has the column.
func (c *KindColumn) In(minor int) bool {
	return c.Since <= minor && (c.Until == 0 || minor <= c.Until)
}

// Cell returns the cell of an object as a table shows it at a time.
func (c *KindColumn) Cell(obj runtime.Object, now time.Time) any {
	switch value := c.Value(obj).(type) {
	case func(time.Time) string:
		return value(now)
	case metav1.Time:
		if value.IsZero() {
			return "<unknown>"
		}
		return duration.HumanDuration(now.Sub(value.Time))
	default:
		return value
	}
}

// Stored reports whether the kind's objects are stored, as those of a Type are.
func (k *Kind) Stored() bool { return k.Answer == nil && k.Computed == nil }

// Resource is the kind's group and plural name.
func (k *Kind) Resource() schema.GroupResource {
	return schema.GroupResource{Group: k.Hub.Group, Resource: k.Name}
}

// New makes an empty object of the hub's Go type.
func (k *Kind) New() runtime.Object {
	return reflect.New(k.goType).Interface().(runtime.Object)
}

// NewList makes an empty list of the hub's Go type; for a virtual type nil.
func (k *Kind) NewList() runtime.Object {
	list, err := newOf(listGVK(k.Hub))
	if err != nil {
		return nil
	}
	return list
}

// Kind implements Declaration.
func (t Type[T]) Kind() *Kind {
	k := newKind[T](t.Name, t.Singular, t.Namespaced)
	k.ShortNames, k.Categories, k.Versions = t.ShortNames, t.Categories, t.Versions
	if k.NameRule = t.NameRule; t.NameRule == nil {
		k.NameRule = apivalidation.NameIsDNSSubdomain
	}
	k.AnyFinalizer = t.AnyFinalizer
	k.Default = change(t.Default)
	k.PrepareCreate = func(ctx context.Context, env *Env, obj runtime.Object) {
		if t.PrepareCreate != nil {
			t.PrepareCreate(ctx, env, obj.(T))
		}
	}
	k.PrepareUpdate = func(ctx context.Context, env *Env, obj, old runtime.Object) {
		if t.PrepareUpdate != nil {
			t.PrepareUpdate(ctx, env, obj.(T), old.(T))
		}
	}
	k.Validate, k.ValidateCreate = validate(t.Validate), validate(t.ValidateCreate)
	k.ValidateUpdate = compare(t.ValidateUpdate)
	k.Restrict = func(env *Env, obj runtime.Object) field.ErrorList {
		if t.Restrict == nil {
			return nil
		}
		return t.Restrict(env, obj.(T))
	}
	k.Warn = func(obj, old runtime.Object) []string {
		if t.Warn == nil {
			return nil
		}
		before, _ := old.(T)
		return t.Warn(obj.(T), before)
	}
	k.Status, k.StatusOnCreate, k.StatusOnly, k.Generation = t.Status, t.StatusOnCreate, t.StatusOnly, t.Generation
	k.GenerationGate = t.GenerationGate
	k.PrepareStatus, k.ValidateStatus, k.StatusResets = prepare(t.PrepareStatus), compare(t.ValidateStatus), t.StatusResets
	k.RestrictStatus = func(env *Env, obj, old runtime.Object) field.ErrorList {
		if t.RestrictStatus == nil {
			return nil
		}
		return t.RestrictStatus(env, obj.(T), old.(T))
	}
	if t.Scale != nil {
		k.Scale = &KindScale{
			Get: func(obj runtime.Object) (*autoscalingv1.Scale, error) { return t.Scale.scaleOf(obj.(T)) },
			Set: func(obj runtime.Object, replicas int32) { *t.Scale.Replicas(obj.(T)) = &replicas },
		}
	}
	for _, v := range t.Views {
		k.Views = append(k.Views, KindView{
			Name: v.Name, NoPatch: v.NoPatch, Prepare: prepare(v.Prepare), Validate: compare(v.Validate), Resets: v.Resets,
			Restrict: func(env *Env, obj, _ runtime.Object) field.ErrorList { return k.Restrict(env, obj) },
		})
	}
	k.Actions, k.Connects = t.Actions, t.Connects
	k.Columns = eraseColumns(t.Columns)
	if t.Order != nil {
		k.Order = func(a, b runtime.Object) int { return t.Order(a.(T), b.(T)) }
	}
	k.Fields = map[string]func(runtime.Object) string{}
	for path, value := range t.Fields {
		k.Fields[path] = func(obj runtime.Object) string { return value(obj.(T)) }
	}
	if k.WatchField = t.WatchField; t.WatchField == "" {
		k.WatchField = "metadata.name"
	}
	k.CreateOnUpdate, k.RequireVersion = t.CreateOnUpdate, t.RequireVersion
	k.ReturnDeleted, k.OrphanByDefault, k.TTL = t.ReturnDeleted, t.OrphanByDefault, t.TTL
	t.eraseHooks(k)
	return k
}

// eraseHooks sets the functions of k that stay nil where t has none.
func (t Type[T]) eraseHooks(k *Kind) {
	if t.GracePeriod != nil {
		k.GracePeriod = func(obj runtime.Object, requested *int64) int64 { return t.GracePeriod(obj.(T), requested) }
	}
	if t.Terminate != nil {
		k.Terminate = change(t.Terminate)
	}
	if t.Held != nil {
		k.Held = func(obj runtime.Object) bool { return t.Held(obj.(T)) }
	}
	if t.BeginCreate != nil {
		k.BeginCreate = func(ctx context.Context, env *Env, obj runtime.Object, dryRun bool) (func(bool), error) {
			return t.BeginCreate(ctx, env, obj.(T), dryRun)
		}
	}
	if t.BeginUpdate != nil {
		k.BeginUpdate = func(ctx context.Context, env *Env, obj, old runtime.Object, dryRun bool) (func(bool), error) {
			return t.BeginUpdate(ctx, env, obj.(T), old.(T), dryRun)
		}
	}
	if t.AfterDelete != nil {
		k.AfterDelete = func(ctx context.Context, env *Env, obj runtime.Object) { t.AfterDelete(ctx, env, obj.(T)) }
	}
	if t.Reservations != nil {
		k.Reservations = func(obj runtime.Object) map[string][]string { return t.Reservations(obj.(T)) }
	}
}

// Kind implements Declaration.
func (v Virtual[T]) Kind() *Kind {
	k := newKind[T](v.Name, v.Singular, v.Namespaced)
	k.Versions = v.Versions
	k.Default = change[T](nil)
	k.Answer = func(ctx context.Context, env *Env, obj runtime.Object, dryRun bool) (runtime.Object, error) {
		return v.Run(ctx, env, obj.(T), dryRun)
	}
	return k
}

// Kind implements Declaration.
func (c Computed[T]) Kind() *Kind {
	k := newKind[T](c.Name, c.Singular, c.Namespaced)
	k.ShortNames, k.Categories, k.Columns = c.ShortNames, c.Categories, eraseColumns(c.Columns)
	k.Default = change[T](nil)
	k.Computed = &KindComputed{
		Get: func(ctx context.Context, env *Env, namespace, name string) (runtime.Object, error) {
			obj, err := c.Get(ctx, env, namespace, name)
			if err != nil {
				return nil, err
			}
			return obj, nil
		},
		List: func(ctx context.Context, env *Env, selection Selection) ([]runtime.Object, error) {
			found, err := c.List(ctx, env, selection)
			objects := make([]runtime.Object, len(found))
			for i := range found {
				objects[i] = found[i]
			}
			return objects, err
		},
	}
	return k
}

func eraseColumns[T Object](columns []Column[T]) []KindColumn {
	var erased []KindColumn
	for _, c := range columns {
		erased = append(erased, KindColumn{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority, Since: c.Since, Until: c.Until,
			Value: func(obj runtime.Object) any { return c.Value(obj.(T)) },
		})
	}
	return erased
}

func newKind[T Object](name, singular string, namespaced bool) *Kind {
	goType := reflect.TypeFor[T]().Elem()
	k := &Kind{Name: name, Singular: singular, Namespaced: namespaced, goType: goType}
	k.Hub = mustGVK(k.New())
	if k.Singular == "" {
		k.Singular = strings.ToLower(k.Hub.Kind)
	}
	return k
}

func change[T Object](f func(T)) func(runtime.Object) {
	return func(obj runtime.Object) {
		if f != nil {
			f(obj.(T))
		}
	}
}

func prepare[T Object](f func(env *Env, obj, old T)) func(env *Env, obj, old runtime.Object) {
	return func(env *Env, obj, old runtime.Object) {
		if f != nil {
			f(env, obj.(T), old.(T))
		}
	}
}

func validate[T Object](f func(obj T) field.ErrorList) func(obj runtime.Object) field.ErrorList {
	return func(obj runtime.Object) field.ErrorList {
		if f == nil {
			return nil
		}
		return f(obj.(T))
	}
}

func compare[T Object](f func(obj, old T) field.ErrorList) func(obj, old runtime.Object) field.ErrorList {
	return func(obj, old runtime.Object) field.ErrorList {
		if f == nil {
			return nil
		}
		return f(obj.(T), old.(T))
	}
}
