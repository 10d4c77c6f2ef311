package fields

import (
	"context"
	"reflect"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
)

// Admission returns the admission chain without what its plugins, such as webhooks, set in
// fields that the release does not have, and with a refusal of objects with values of
// enumerations that the release does not have. An update may keep what is stored. hub
// returns the kind, in memory, of an object.
func (f *Fields) Admission(next admission.Interface, hub func(runtime.Object) (schema.GroupVersionKind, bool)) admission.Interface {
	if f == nil {
		return next
	}
	return values{next, f, hub}
}

type values struct {
	next   admission.Interface
	fields *Fields
	hub    func(runtime.Object) (schema.GroupVersionKind, bool)
}

// Handles implements admission.Interface.
func (v values) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update || v.next != nil && v.next.Handles(operation)
}

// Admit implements admission.MutationInterface.
func (v values) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	mutates, ok := v.next.(admission.MutationInterface)
	if !ok || !v.next.Handles(a.GetOperation()) {
		return nil
	}
	if err := mutates.Admit(ctx, a, o); err != nil {
		return err
	}
	if err := v.prune(a, o); err != nil {
		return apierrors.NewInternalError(err)
	}
	return nil
}

// prune removes the fields that the release lacks. The decoder has removed those of the
// request: what is left was set by admission plugins. The object in memory may be of a
// version that the release does not serve; then its fields are those of the request's.
func (v values) prune(a admission.Attributes, o admission.ObjectInterfaces) error {
	obj := a.GetObject()
	if obj == nil {
		return nil
	}
	hub, ok := v.hub(obj)
	if !ok {
		return nil
	}
	if kind := v.fields.table.Kind(hub); kind == nil || kind.ServedAt(v.fields.release) {
		v.pruneAs(hub, obj, a.GetOldObject(), o.GetObjectDefaulter())
		return nil
	}
	versioned, err := convert(o, obj, a.GetKind())
	if err != nil {
		return err
	}
	var old runtime.Object
	if stored := a.GetOldObject(); stored != nil {
		if old, err = convert(o, stored, a.GetKind()); err != nil {
			return err
		}
	}
	if !v.pruneAs(a.GetKind(), versioned, old, o.GetObjectDefaulter()) {
		return nil
	}
	pruned, err := convert(o, versioned, hub)
	if err != nil {
		return err
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(pruned).Elem())
	return nil
}

func convert(o admission.ObjectInterfaces, obj runtime.Object, to schema.GroupVersionKind) (runtime.Object, error) {
	converted, err := o.GetObjectCreater().New(to)
	if err != nil {
		return nil, err
	}
	return converted, o.GetObjectConvertor().Convert(obj, converted, nil)
}

// pruneAs removes the fields that the release lacks from an object of a kind, except the
// values that the stored object has, which may be nil, and defaults. It reports whether it
// has changed the object.
func (v values) pruneAs(gvk schema.GroupVersionKind, obj, old runtime.Object, defaulter runtime.ObjectDefaulter) bool {
	n := v.fields.Of(gvk, reflect.TypeOf(obj).Elem())
	before := n.Values(obj)
	if len(before) == 0 {
		return false
	}
	stored := map[string][]any{}
	if n.Fits(old) {
		for at, value := range n.Values(old) {
			stored[place(at)] = append(stored[place(at)], value)
		}
	}
	n.prune(reflect.ValueOf(obj).Elem(), nil, func(at *path, value any) bool {
		return slices.ContainsFunc(stored[place(at.String())], func(kept any) bool { return equality.Semantic.DeepEqual(kept, value) })
	})
	defaulter.Default(obj)
	return !equality.Semantic.DeepEqual(before, n.Values(obj))
}

// place returns a path without the indexes of lists, whose items an update may move.
func place(at string) string { return indexes.ReplaceAllLiteralString(at, "[]") }

var indexes = regexp.MustCompile(`\[\d+\]`)

// Validate implements admission.ValidationInterface.
func (v values) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if errs := v.unsupported(a.GetObject(), a.GetOldObject()); len(errs) > 0 {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
	}
	if validates, ok := v.next.(admission.ValidationInterface); ok && v.next.Handles(a.GetOperation()) {
		return validates.Validate(ctx, a, o)
	}
	return nil
}

func (v values) unsupported(obj, old runtime.Object) field.ErrorList {
	errs := v.newValues(obj)
	if len(errs) == 0 || old == nil {
		return errs
	}
	kept := v.newValues(old)
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		return slices.ContainsFunc(kept, func(k *field.Error) bool {
			return k.BadValue == err.BadValue && place(k.Field) == place(err.Field)
		})
	})
}

func (v values) newValues(obj runtime.Object) field.ErrorList {
	if obj == nil {
		return nil
	}
	hub, ok := v.hub(obj)
	if !ok {
		return nil
	}
	of := reflect.ValueOf(obj).Elem()
	n := v.fields.Of(hub, of.Type())
	if n == nil {
		return nil
	}
	return n.newValues(of, nil)
}
