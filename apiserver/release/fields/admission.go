package fields

import (
	"context"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
)

// Admission returns the admission chain with a refusal of objects with values of
// enumerations that the release does not have. An update may keep the values that are
// stored. hub returns the kind, in memory, of an object.
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
	if mutates, ok := v.next.(admission.MutationInterface); ok && v.next.Handles(a.GetOperation()) {
		return mutates.Admit(ctx, a, o)
	}
	return nil
}

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
		return slices.ContainsFunc(kept, func(k *field.Error) bool { return k.BadValue == err.BadValue })
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
