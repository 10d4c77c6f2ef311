package aggregation

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
)

// definitions registers the versions that CustomResourceDefinitions serve.
type definitions struct {
	lister       apiextensionslisters.CustomResourceDefinitionLister
	registration autoregister.AutoAPIServiceRegistration
	// local versions are not a definition's to register or remove.
	local []schema.GroupVersion
}

// watchDefinitions registers the versions of definitions and removes those of
// deleted ones. The handler that it returns has synced when all definitions that
// exist are registered.
func watchDefinitions(crds apiextensionsinformers.CustomResourceDefinitionInformer, registration autoregister.AutoAPIServiceRegistration, local []schema.GroupVersion) (cache.ResourceEventHandlerRegistration, error) {
	d := definitions{lister: crds.Lister(), registration: registration, local: local}
	return crds.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: d.changed,
		// A version may be missing in the new state.
		UpdateFunc: func(before, after any) { d.changed(before); d.changed(after) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			d.changed(obj)
		},
	})
}

// changed updates the registration of a definition's versions.
func (d definitions) changed(obj any) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return
	}
	for _, version := range crd.Spec.Versions {
		gv := schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name}
		if slices.Contains(d.local, gv) {
			continue
		}
		if d.serves(gv) {
			d.registration.AddAPIServiceToSync(apiService(gv, definitionGroupPriority, definitionVersionPriority))
		} else {
			d.registration.RemoveAPIServiceToSync(serviceName(gv))
		}
	}
}

// serves reports whether any definition serves the version.
func (d definitions) serves(gv schema.GroupVersion) bool {
	crds, err := d.lister.List(labels.Everything())
	if err != nil {
		// A lister reads from memory; it cannot fail. If it does, it is better
		// to keep a version than to take it away.
		runtime.HandleError(err)
		return true
	}
	return slices.ContainsFunc(crds, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Group == gv.Group && slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == gv.Version && v.Served
		})
	})
}
