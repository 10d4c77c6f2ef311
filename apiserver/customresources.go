package apiserver

import (
	"net/http"

	"github.com/emicklei/go-restful/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/tools/cache"

	"svc.dev/svc/apiserver/bodycheck"
	"svc.dev/svc/apiserver/filters/noprotobuf"
	"svc.dev/svc/apiserver/patcherror"
)

// customResources makes the last server: CustomResourceDefinitions and their
// objects. It returns nil if they are disabled.
func (c *chain) customResources(shared *genericapiserver.RecommendedConfig) (*apiextensionsserver.CustomResourceDefinitions, error) {
	if !c.stores.served.ServesOther(apiextensionsv1.SchemeGroupVersion) {
		return nil, nil
	}
	own := library{
		scheme: apiextensionsserver.Scheme, codecs: apiextensionsserver.Codecs, version: apiextensionsv1.SchemeGroupVersion,
		definitions: apiextensionsopenapi.GetOpenAPIDefinitions,
		stored:      func(codec runtime.Codec) runtime.Codec { return newDefinitionCodec(codec) },
	}
	config := c.linkConfig(shared, own)
	config.SkipOpenAPIInstallation = true // see below
	made := apiextensionsserver.Config{
		GenericConfig: &config,
		ExtraConfig: apiextensionsserver.ExtraConfig{
			CRDRESTOptionsGetter: c.stores.backend.RESTOptions(unstructured.UnstructuredJSONScheme, nil),
			MasterCount:          1,
			ServiceResolver:      c.clients.services,
			AuthResolverWrapper:  c.conversionsInDomain(c.clients.webhookAuth(), &shared.Config),
		},
	}
	server, err := made.Complete().New(c.notFound(&config))
	if err != nil {
		return nil, err
	}
	if err := c.addOlderDefinitions(&config, server.GenericAPIServer, own); err != nil {
		return nil, err
	}
	handler := server.GenericAPIServer.Handler
	handler.GoRestfulContainer.ServiceErrorHandler(c.unrouted(&config))
	definitions := server.Informers.Apiextensions().V1().CustomResourceDefinitions()
	c.documents(own).InstallWithCustomResources(handler.GoRestfulContainer, handler.NonGoRestfulMux, definitions.Lister())
	checks := []bodycheck.Check{bodycheck.CustomApplyFields(definitions.Lister())}
	handler.Director = patcherror.DryRunFilter(handler.Director, shared.Serializer)
	handler.Director = bodycheck.Filter(handler.Director, shared.Serializer, checks, shared.MaxRequestBodyBytes)
	handler.Director = noprotobuf.Filter(handler.Director, shared.Serializer)
	return server, definitions.Informer().SetTransform(shareSpecs(c.markConversions(addCreatedAt)))
}

// afterKinds returns the server of the requests that are not for kinds: that of
// custom resources, if there is one.
func (c *chain) afterKinds(config *genericapiserver.RecommendedConfig, crds *apiextensionsserver.CustomResourceDefinitions) genericapiserver.DelegationTarget {
	if crds == nil {
		return c.notFound(config)
	}
	return crds.GenericAPIServer
}

// notFound returns the end of the chain, which tells clients of a version that was
// removed what replaces it.
func (c *chain) notFound(config *genericapiserver.RecommendedConfig) genericapiserver.DelegationTarget {
	other := notfoundhandler.New(config.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	return genericapiserver.NewEmptyDelegateWithCustomHandler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !c.answerRemoved(config, w, req) {
			other.ServeHTTP(w, req)
		}
	}))
}

// unrouted returns the handler of requests for which a container has no route, such as
// those for a removed version of a group that is served. Its other answers are the
// library's.
func (c *chain) unrouted(config *genericapiserver.RecommendedConfig) restful.ServiceErrorHandleFunction {
	return func(err restful.ServiceError, req *restful.Request, resp *restful.Response) {
		if err.Code == http.StatusNotFound && c.answerRemoved(config, resp.ResponseWriter, req.Request) {
			return
		}
		status := apierrors.NewGenericServerResponse(err.Code, "", schema.GroupResource{}, "", err.Message, 0, false)
		responsewriters.ErrorNegotiated(status, config.Serializer, schema.GroupVersion{}, resp, req.Request)
	}
}

// answerRemoved answers a request for a resource in a version that was removed, and
// reports whether it is one.
func (c *chain) answerRemoved(config *genericapiserver.RecommendedConfig, w http.ResponseWriter, req *http.Request) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest {
		return false
	}
	text := c.stores.served.Removed(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource})
	if text == "" {
		return false
	}
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: text}
	responsewriters.ErrorNegotiated(&apierrors.StatusError{ErrStatus: status}, config.Serializer, schema.GroupVersion{}, w, req)
	return true
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
