// Package badoptions keeps errors of clients in the options of lists and watches out of the
// log: the libraries log them as errors of the server wherever they read the options, before
// the handler answers with 400.
package badoptions

import (
	"net/http"
	"net/url"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// Resolver is next for requests whose options are well-formed. For the others, it returns
// what the library does when it cannot read them: whether they ask for a watch, and the
// selectors as they are, by which requests are authorized.
func Resolver(next request.RequestInfoResolver) request.RequestInfoResolver {
	return resolver{next}
}

type resolver struct{ next request.RequestInfoResolver }

func (r resolver) NewRequestInfo(req *http.Request) (*request.RequestInfo, error) {
	cut := readable(req)
	info, err := r.next.NewRequestInfo(cut)
	if err != nil || cut == req {
		return info, err
	}
	query := req.URL.Query()
	if info.FieldSelector != "" {
		info.FieldSelector = query.Get("fieldSelector")
	}
	if info.LabelSelector != "" {
		info.LabelSelector = query.Get("labelSelector")
	}
	return info, nil
}

// Estimator is next for requests whose options are well-formed. The others, which will fail,
// have the estimate of a request without options.
func Estimator(next flowcontrolrequest.WorkEstimatorFunc) flowcontrolrequest.WorkEstimatorFunc {
	return func(req *http.Request, flowSchema, priorityLevel string) flowcontrolrequest.WorkEstimate {
		return next(readable(req), flowSchema, priorityLevel)
	}
}

// readable returns the request, or, if the options of a list are malformed, one that has only
// its parameter watch, and selectors where it has any.
func readable(req *http.Request) *http.Request {
	if req.Method != http.MethodGet || req.URL.RawQuery == "" {
		return req // most requests
	}
	query := req.URL.Query()
	if metainternalversionscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &metainternalversion.ListOptions{}) == nil {
		return req
	}
	kept := url.Values{}
	if watch := query["watch"]; len(watch) > 0 {
		kept["watch"] = watch[:1]
	}
	for _, selector := range []string{"fieldSelector", "labelSelector"} {
		if query.Get(selector) != "" {
			kept.Set(selector, "some=selector")
		}
	}
	cut := *req
	u := *req.URL
	u.RawQuery = kept.Encode()
	cut.URL = &u
	return &cut
}
