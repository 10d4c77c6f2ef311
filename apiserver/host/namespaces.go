package host

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"svc.dev/svc/apiserver/groupdomain"
)

// Namespaces serves the host's namespaces for reading, with the rights of the server
// itself. The caller must have authorized the request.
type Namespaces struct {
	proxy *httputil.ReverseProxy
	// served are the names of those that the fleet serves; empty for all.
	served []string
}

func newNamespaces(config *rest.Config, served []string) (*Namespaces, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &Namespaces{served: served, proxy: &httputil.ReverseProxy{
		Rewrite:       func(req *httputil.ProxyRequest) { toHost(req, host) },
		Transport:     transport,
		FlushInterval: -1, // events of watches are sent at once
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			http.Error(w, fmt.Sprintf("the host, whose namespaces these are, does not answer: %v", err), http.StatusServiceUnavailable)
		},
	}}, nil
}

// kept are the headers of a request that the host gets. The others say who the client
// is.
var kept = []string{"Accept", "Accept-Encoding", "User-Agent", "Audit-Id"}

func toHost(req *httputil.ProxyRequest, host *url.URL) {
	for name := range req.Out.Header {
		if !slices.Contains(kept, name) {
			req.Out.Header.Del(name)
		}
	}
	req.SetURL(host)
}

// ServeHTTP serves a request that reads namespaces.
func (n *Namespaces) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if len(n.served) > 0 {
		name := ""
		if segments := segmentsOf(req); len(segments) > 1 {
			name = segments[1]
		}
		if name != "" && !slices.Contains(n.served, name) {
			n.absent(w, name)
			return
		}
		if name == "" {
			req = n.narrowed(req)
		}
	}
	n.proxy.ServeHTTP(w, req)
}

// absent answers that the fleet does not serve a namespace, which the host may have.
func (n *Namespaces) absent(w http.ResponseWriter, name string) {
	status := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name).Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.Message += ": the fleet serves " + strings.Join(n.served, ", ")
	responsewriters.WriteRawJSON(http.StatusNotFound, status, w)
}

// narrowed returns a request that reads only the namespaces which the fleet serves. Every
// namespace has its name in a label, which no client can change.
func (n *Namespaces) narrowed(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	query := req.URL.Query()
	selector := corev1.LabelMetadataName + " in (" + strings.Join(n.served, ",") + ")"
	if given := query.Get("labelSelector"); given != "" {
		selector = given + "," + selector
	}
	query.Set("labelSelector", selector)
	req.URL.RawQuery = query.Encode()
	return req
}

// Serves reports whether a request is for namespaces themselves.
func Serves(req *http.Request) bool { return groupdomain.IsNamespace(segmentsOf(req)) }

// segmentsOf returns what follows /api/v1/, or /api/v1/watch/, in the path of a request.
func segmentsOf(req *http.Request) []string {
	rest, ok := strings.CutPrefix(req.URL.Path, "/api/v1/")
	if !ok {
		return nil
	}
	segments := strings.Split(strings.TrimSuffix(rest, "/"), "/")
	if segments[0] == "watch" {
		segments = segments[1:]
	}
	return segments
}

// Filter serves reads of namespaces from the host, and refuses writes.
func (n *Namespaces) Filter(next http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || !Serves(req) {
			next.ServeHTTP(w, req)
			return
		}
		if slices.Contains([]string{"get", "list", "watch"}, info.Verb) {
			n.ServeHTTP(w, req)
			return
		}
		gv := schema.GroupVersion{Version: info.APIVersion}
		responsewriters.ErrorNegotiated(apierrors.NewForbidden(schema.GroupResource{Resource: info.Resource}, info.Name, errWrite), serializer, gv, w, req)
	})
}

var errWrite = errors.New("namespaces are the host's: write them there, as with kubectl create namespace in the host's context")
