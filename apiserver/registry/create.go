package registry

import (
	"bytes"
	"context"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Creator creates the server's own objects without a request: of those that a first start
// writes, the handlers of requests would take most of the time.
type Creator struct {
	scheme *runtime.Scheme
	byType map[reflect.Type]*mainREST
}

// NewCreator returns a creator of objects of the kinds, in the Go types of their hubs. The
// scheme has their defaults.
func (r *Registry) NewCreator(scheme *runtime.Scheme) *Creator {
	c := &Creator{scheme: scheme, byType: map[reflect.Type]*mainREST{}}
	for _, res := range r.Resources {
		if res.main != nil {
			c.byType[reflect.TypeOf(res.Kind.New())] = res.main
		}
	}
	return c
}

// Create sets the defaults of an object, validates it, and writes it as a client does whose
// name as a manager of fields is manager. It bypasses authorization and admission. Errors
// are apierrors: AlreadyExists if there is an object of this name.
func (c *Creator) Create(ctx context.Context, manager string, obj runtime.Object) error {
	main := c.byType[reflect.TypeOf(obj)]
	if main == nil {
		return fmt.Errorf("create %T: no kind has this type", obj)
	}
	c.scheme.Default(obj)
	meta := metaOf(obj)
	managed, err := allFields(main.kind.New(), obj, main.kind.Hub.GroupVersion().String(), manager)
	if err != nil {
		return fmt.Errorf("managed fields of %s %s: %w", main.kind.Resource(), meta.GetName(), err)
	}
	managed.Time = &metav1.Time{Time: main.strategy.env.Clock.Now().UTC()}
	meta.SetManagedFields([]metav1.ManagedFieldsEntry{managed})
	_, err = main.Create(objects{main: main}.in(ctx, meta.GetNamespace()), obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	return err
}

// allFields returns the entry of a manager that has set all fields of an object, without a
// time. As everywhere in requests of the server itself, lists are owned as a whole. empty
// is an object of the same type: what it has, too, no manager has set.
func allFields(empty, obj runtime.Object, apiVersion, manager string) (metav1.ManagedFieldsEntry, error) {
	entry := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: apiVersion, FieldsType: "FieldsV1"}
	before, err := typed.DeducedParseableType.FromStructured(empty)
	if err != nil {
		return entry, err
	}
	after, err := typed.DeducedParseableType.FromStructured(obj)
	if err != nil {
		return entry, err
	}
	changed, err := before.Compare(after)
	if err != nil {
		return entry, err
	}
	set := changed.Added.Union(changed.Modified)
	var encoded bytes.Buffer
	if err := set.Difference(unowned()).ToJSONStream(&encoded); err != nil {
		return entry, err
	}
	entry.FieldsV1 = metav1.NewFieldsV1(encoded.String())
	return entry, nil
}

// unowned are the fields that no manager owns.
func unowned() *fieldpath.Set {
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"))
	for _, field := range []string{"name", "namespace", "creationTimestamp", "uid", "generation", "managedFields", "resourceVersion"} {
		set.Insert(fieldpath.MakePathOrDie("metadata", field))
	}
	return set
}
