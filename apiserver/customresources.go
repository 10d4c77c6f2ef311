package apiserver

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"

	"svc.dev/svc/apiserver/bodycheck"
	"svc.dev/svc/apiserver/customlist"
	"svc.dev/svc/apiserver/customvalidation"
	"svc.dev/svc/apiserver/established"
	"svc.dev/svc/apiserver/filters/noprotobuf"
	"svc.dev/svc/apiserver/patcherror"
)

// customResources makes the last server: CustomResourceDefinitions and their
// objects. It returns nil if they are disabled.
func (c *chain) customResources(shared *genericapiserver.RecommendedConfig) (*apiextensionsserver.CustomResourceDefinitions, error) {
	if !c.stores.served.ServesOther(apiextensionsv1.SchemeGroupVersion) {
		return nil, nil
	}
	own, err := c.withOlder(library{
		scheme: apiextensionsserver.Scheme, codecs: apiextensionsserver.Codecs, version: apiextensionsv1.SchemeGroupVersion,
		definitions: apiextensionsopenapi.GetOpenAPIDefinitions,
		stored:      c.layers.definitionCodec,
	}, olderDefinitions)
	if err != nil {
		return nil, err
	}
	config := c.linkConfig(shared, own)
	config.SkipOpenAPIInstallation = true // InstallWithCustomResources serves the documents
	transform := established.Transform(c.markConversions(addCreatedAt), c.stores.servers.Alone, c.clock)
	config.AdmissionControl = established.Keep(config.AdmissionControl)
	var server *apiextensionsserver.CustomResourceDefinitions
	config.AdmissionControl = customvalidation.Limit(config.AdmissionControl, func(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
		return server.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister().Get(name)
	})
	made := apiextensionsserver.Config{
		GenericConfig: &config,
		ExtraConfig: apiextensionsserver.ExtraConfig{
			CRDRESTOptionsGetter: c.stores.backend.RESTOptions(unstructured.UnstructuredJSONScheme, nil),
			MasterCount:          1,
			ServiceResolver:      c.clients.services,
			AuthResolverWrapper:  c.conversionsInDomain(c.clients.webhookAuth(), &shared.Config),
		},
	}
	server, err = made.Complete().New(c.notFound(&config))
	if err != nil {
		return nil, err
	}
	if err := c.addOlderDefinitions(&config, server.GenericAPIServer, own); err != nil {
		return nil, err
	}
	server.Informers = established.After(c.stores.servers, server.Informers) // its post-start hook starts them
	handler := server.GenericAPIServer.Handler
	handler.GoRestfulContainer.ServiceErrorHandler(c.unrouted(&config))
	definitions := server.Informers.Apiextensions().V1().CustomResourceDefinitions()
	c.documents(own).InstallWithCustomResources(handler.GoRestfulContainer, handler.NonGoRestfulMux, definitions.Lister())
	checks := []bodycheck.Check{bodycheck.CustomApplyFields(definitions.Lister())}
	if c.items != nil {
		handler.Director = customlist.Filter(handler.Director, own.codecs, c.items)
	}
	handler.Director = patcherror.DryRunFilter(handler.Director, shared.Serializer)
	handler.Director = bodycheck.Filter(handler.Director, shared.Serializer, checks, shared.MaxRequestBodyBytes, nil)
	handler.Director = noprotobuf.Filter(handler.Director, shared.Serializer)
	return server, definitions.Informer().SetTransform(c.layers.definitionTransform(transform))
}

// afterKinds returns the server of the requests that are not for kinds: that of
// custom resources, if there is one.
func (c *chain) afterKinds(config *genericapiserver.RecommendedConfig, crds *apiextensionsserver.CustomResourceDefinitions) genericapiserver.DelegationTarget {
	if crds == nil {
		return c.notFound(config)
	}
	return crds.GenericAPIServer
}

// shareSpecs returns a transform function of the informer of definitions, after another
// one. A definition shares its specification with its last state, from which its objects
// are served.
func shareSpecs(transform cache.TransformFunc) cache.TransformFunc {
	shared := newSpecs(func(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionSpec {
		return &crd.Spec
	})
	return func(obj any) (any, error) {
		obj, err := transform(obj)
		if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok && err == nil {
			shared.share(crd.UID, crd)
		}
		return obj, err
	}
}

// addCreatedAt is the transform function of the informer of definitions. A type without columns of its own gets the
// column Created At in tables (document 1, section 2); the library's own choice is
// Age.
func addCreatedAt(obj any) (any, error) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return obj, nil
	}
	for i := range crd.Spec.Versions {
		if version := &crd.Spec.Versions[i]; len(version.AdditionalPrinterColumns) == 0 {
			version.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{
				Name: "Created At", Type: "date", JSONPath: ".metadata.creationTimestamp",
				Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
			}}
		}
	}
	return crd, nil
}
