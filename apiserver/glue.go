package apiserver

import (
	"net/http"

	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	aggregatorserver "k8s.io/kube-aggregator/pkg/apiserver"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/reviews"
	"svc.dev/svc/apiserver/view"
)

func discoveryNotFound(s runtime.NegotiatedSerializer) http.Handler {
	return notfoundhandler.New(s, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
}
func (b *builder) declarations() []*resource.Kind {
	kinds := apis.Kinds()
	for _, d := range reviews.Kinds(b.authorizer, b.authorizer, b.authenticators.Identified, nil) {
		kinds = append(kinds, d.Kind())
	}
	return kinds
}
func (b *builder) registerServices(config genericapiserver.RecommendedConfig, server *aggregatorserver.APIAggregator, crds *apiextensionsserver.CustomResourceDefinitions, groups []view.Group) error {
	return nil
}
func (b *builder) bootstrap(config *genericapiserver.RecommendedConfig, server *genericapiserver.GenericAPIServer) error {
	return nil
}
