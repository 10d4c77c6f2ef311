package apiserver

import (
	"net/http"

	"github.com/emicklei/go-restful/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"

	"svc.dev/svc/apiserver/groupdomain"
)

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
	public := func(group string) string { return group }
	if c.hosted != nil && !groupdomain.UnderStoredNames(req.Context()) {
		public = c.hosted.names.Public
	}
	text := c.stores.served.Removed(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}, public)
	if text == "" {
		return false
	}
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: text}
	responsewriters.ErrorNegotiated(&apierrors.StatusError{ErrStatus: status}, config.Serializer, schema.GroupVersion{}, w, req)
	return true
}
