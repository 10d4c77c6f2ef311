// Package customvalidation refuses large custom resources with very many errors before the
// library validates them. To find equal errors, and to make one message of them, the library
// takes time quadratic in their number, at each level of the object: 20,000 invalid items of
// a list take longer than the time limit of a request.
//
// The errors of values that only a branch of anyOf, oneOf, allOf or not restricts are found
// by the library.
package customvalidation

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apiserver/definitioncache"
	"svc.dev/svc/apiserver/errorlimit"
)

// large is the number of values from which a custom resource is validated here, too. The
// library validates smaller ones in time, whatever their errors are.
const large = 1000

// Limit returns the admission chain, and after its changes a refusal of large custom
// resources that have more than errorlimit.Max errors. definition returns the definition of a
// name, which must be immutable.
func Limit(next admission.Interface, definition func(name string) (*apiextensionsv1.CustomResourceDefinition, error)) admission.Interface {
	return limit{next, definition, definitioncache.New(newValidator)}
}

type limit struct {
	next       admission.Interface
	definition func(name string) (*apiextensionsv1.CustomResourceDefinition, error)
	validators *definitioncache.Cache[validatorOrError]
}

// Handles implements admission.Interface.
func (l limit) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update || l.next != nil && l.next.Handles(operation)
}

// Admit implements admission.MutationInterface.
func (l limit) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if mutates, ok := l.next.(admission.MutationInterface); ok && l.next.Handles(a.GetOperation()) {
		if err := mutates.Admit(ctx, a, o); err != nil {
			return err
		}
	}
	obj, custom := a.GetObject().(*unstructured.Unstructured)
	if !custom || sizeOf(obj.Object) < large {
		return nil
	}
	definition, err := l.definition(a.GetResource().Resource + "." + a.GetResource().Group)
	if apierrors.IsNotFound(err) {
		return nil // another server's
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	validator := l.validators.Of(definition, a.GetKind().Version)
	if validator.err != nil {
		return apierrors.NewInternalError(validator.err)
	}
	old, _ := a.GetOldObject().(*unstructured.Unstructured)
	errs, unlisted := validator.errorsOf(ctx, obj, old, a.GetSubresource())
	if len(errs) <= errorlimit.Max {
		return nil
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), obj.GetName(), errorlimit.First(errs, unlisted))
}

// Validate implements admission.ValidationInterface.
func (l limit) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if validates, ok := l.next.(admission.ValidationInterface); ok && l.next.Handles(a.GetOperation()) {
		return validates.Validate(ctx, a, o)
	}
	return nil
}

// sizeOf returns the number of values in v, or a number above large if there are more.
func sizeOf(v any) int {
	size := 1
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			if size += sizeOf(member); size > large {
				break
			}
		}
	case []any:
		for _, item := range v {
			if size += sizeOf(item); size > large {
				break
			}
		}
	}
	return size
}
