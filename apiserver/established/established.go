// Package established owns how soon objects of a new CustomResourceDefinition can be created.
//
// The library delays each creation in the first two seconds after a definition has been
// established, so that all API servers of a cluster serve the kind before it has an object.
// An API server that is the only one of its etcd does not need that.
package established

import (
	"context"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// delay is that of the library's handler of custom resources, which reads definitions from
// its informer.
const delay = 2 * time.Second

// Transform returns a transform function of that informer, after another one. A definition
// that was established a moment ago has been for longer than the delay if alone, which is
// called with each such definition, reports that this server is the only one. So has one
// that will be: the library serves its objects once its names are accepted.
func Transform(next cache.TransformFunc, alone func() bool, clock clock.PassiveClock) cache.TransformFunc {
	return func(obj any) (any, error) {
		obj, err := next(obj)
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok || err != nil {
			return obj, err
		}
		condition := apihelpers.FindCRDCondition(crd, apiextensionsv1.Established)
		if condition != nil && clock.Since(condition.LastTransitionTime.Time) < delay && alone() {
			condition.LastTransitionTime.Time = condition.LastTransitionTime.Add(-delay)
		}
		return obj, nil
	}
}

// Keep adds to a chain of admission plugins that updates of a definition keep the time at
// which it was established: the library's controllers write the statuses of definitions that
// Transform has changed.
func Keep(chain admission.Interface) admission.Interface {
	return admission.NewChainHandler(keep{admission.NewHandler(admission.Update)}, chain)
}

type keep struct{ *admission.Handler }

var _ admission.MutationInterface = keep{}

// Admit implements admission.MutationInterface.
func (keep) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	crd, isDefinition := a.GetObject().(*apiextensions.CustomResourceDefinition)
	old, had := a.GetOldObject().(*apiextensions.CustomResourceDefinition)
	if !isDefinition || !had {
		return nil
	}
	after, before := apiextensions.FindCRDCondition(crd, apiextensions.Established), apiextensions.FindCRDCondition(old, apiextensions.Established)
	if after != nil && before != nil && after.Status == before.Status {
		after.LastTransitionTime = before.LastTransitionTime
	}
	return nil
}
