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
// enumerations that the release does not have. What the request has, as decoders and checks
// of bodies have left it, and what is stored stay. hub
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
	requested := v.requested(a.GetObject())
	if err := mutates.Admit(ctx, a, o); err != nil {
		return err
	}
	if err := v.prune(a, o, requested); err != nil {
		return apierrors.NewInternalError(err)
	}
	return nil
}

// requested returns the fields that the release lacks of an object before the plugins see
// it: decoders and package bodycheck have left only those that it may keep, such as the
// status that a node agent reports. It has none of a kind in memory whose version the
// release does not serve; agents report no such kind.
func (v values) requested(obj runtime.Object) map[string]any {
	if obj == nil {
		return nil
	}
	hub, ok := v.hub(obj)
	if !ok {
		return nil
	}
	return v.fields.Of(hub, reflect.TypeOf(obj).Elem()).Values(obj)
}

// prune removes the fields that the release lacks and that admission plugins have set: those
// that the request did not have. The object in memory may be of an internal version, or of
// one that the release does not serve; then its fields are those of the request's.
func (v values) prune(a admission.Attributes, o admission.ObjectInterfaces, requested map[string]any) error {
	obj := a.GetObject()
	if obj == nil {
		return nil
	}
	hub, ok := v.hub(obj)
	if !ok {
		return nil
	}
	if kind := v.fields.table.Kind(hub); hub.Version != runtime.APIVersionInternal && (kind == nil || kind.ServedAt(v.fields.release)) {
		_, err := v.pruneAs(hub, obj, requested, func() (runtime.Object, error) { return a.GetOldObject(), nil }, o.GetObjectDefaulter())
		return err
	}
	versioned, err := convert(o, obj, a.GetKind())
	if err != nil {
		return err
	}
	stored := func() (runtime.Object, error) {
		if a.GetOldObject() == nil {
			return nil, nil
		}
		return convert(o, a.GetOldObject(), a.GetKind())
	}
	if changed, err := v.pruneAs(a.GetKind(), versioned, nil, stored, o.GetObjectDefaulter()); err != nil || !changed {
		return err
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

// pruneAs removes the fields that the release lacks from an object of a kind, except
// defaults and the values that the request or the stored object has, which may be nil. It
// reports whether it has changed the object.
func (v values) pruneAs(gvk schema.GroupVersionKind, obj runtime.Object, requested map[string]any, stored func() (runtime.Object, error), defaulter runtime.ObjectDefaulter) (bool, error) {
	n := v.fields.Of(gvk, reflect.TypeOf(obj).Elem())
	found := n.Values(obj)
	if len(found) == 0 || equality.Semantic.DeepEqual(found, requested) {
		return false, nil
	}
	old, err := stored()
	if err != nil {
		return false, err
	}
	kept := map[string][]any{}
	keep := func(values map[string]any) {
		for at, value := range values {
			kept[place(at)] = append(kept[place(at)], value)
		}
	}
	keep(requested)
	if n.Fits(old) {
		keep(n.Values(old))
	}
	n.prune(reflect.ValueOf(obj).Elem(), nil, func(at *path, value any) bool {
		return slices.ContainsFunc(kept[place(at.String())], func(kept any) bool { return equality.Semantic.DeepEqual(kept, value) })
	})
	defaulter.Default(obj)
	return !equality.Semantic.DeepEqual(found, n.Values(obj)), nil
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
