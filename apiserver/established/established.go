// Package established owns how soon objects of a new CustomResourceDefinition can be created.
//
// The library delays each creation in the first two seconds after a definition has been
// established, so that all API servers of a cluster serve the kind before it has an object.
// An API server that is the only one does not need that.
package established

import (
	"context"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/tools/cache"
)

// delay is that of the library's handler of custom resources, which reads definitions from
// its informer.
const delay = 2 * time.Second

// Transform returns a transform function of that informer, after another one: each definition
// has been established for longer than the delay.
func Transform(next cache.TransformFunc) cache.TransformFunc {
	return func(obj any) (any, error) {
		obj, err := next(obj)
		if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok && err == nil {
			if condition := apihelpers.FindCRDCondition(crd, apiextensionsv1.Established); condition != nil {
				condition.LastTransitionTime.Time = condition.LastTransitionTime.Add(-delay)
			}
		}
		return obj, err
	}
}

// Keep returns an admission chain whose updates of a definition keep the time at which it was
// established: the library's controllers write the statuses of definitions that Transform has
// changed.
func Keep(next admission.Interface) admission.Interface { return keep{next} }

type keep struct{ next admission.Interface }

// Handles implements admission.Interface.
func (k keep) Handles(operation admission.Operation) bool {
	return operation == admission.Update || k.next != nil && k.next.Handles(operation)
}

// Admit implements admission.MutationInterface.
func (k keep) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	crd, isDefinition := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if old, had := a.GetOldObject().(*apiextensions.CustomResourceDefinition); isDefinition && had {
		after, before := apiextensions.FindCRDCondition(crd, apiextensions.Established), apiextensions.FindCRDCondition(old, apiextensions.Established)
		if after != nil && before != nil && after.Status == before.Status {
			after.LastTransitionTime = before.LastTransitionTime
		}
	}
	if mutates, ok := k.next.(admission.MutationInterface); ok && k.next.Handles(a.GetOperation()) {
		return mutates.Admit(ctx, a, o)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (k keep) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if validates, ok := k.next.(admission.ValidationInterface); ok && k.next.Handles(a.GetOperation()) {
		return validates.Validate(ctx, a, o)
	}
	return nil
}
