package aggregation

import (
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/util/proxy"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// Services resolves Services to URLs, for the servers of APIServices and for
// webhooks.
type Services struct {
	// Lister lists the Services.
	Lister corev1listers.ServiceLister
	// Endpoints, if set, makes connections go to one of the endpoints instead
	// of the cluster IP, for a server outside the cluster's network (flag
	// --enable-aggregator-routing).
	Endpoints proxy.EndpointSliceGetter
	// Loopback is the URL of this server itself, to which port 443 of the Service
	// default/kubernetes resolves. If it is nil, that Service is not special.
	Loopback *url.URL
}

// ResolveEndpoint returns the URL of a Service's port. A Service of type
// ExternalName resolves to its name.
func (s Services) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	if s.Loopback != nil && namespace == metav1.NamespaceDefault && name == "kubernetes" && port == 443 {
		loopback := *s.Loopback
		return &loopback, nil
	}
	if s.Endpoints == nil {
		return proxy.ResolveCluster(s.Lister, namespace, name, port)
	}
	service, err := s.Lister.Services(namespace).Get(name)
	if err != nil {
		return nil, err
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return proxy.ResolveCluster(s.Lister, namespace, name, port)
	}
	return proxy.ResolveEndpoint(s.Lister, s.Endpoints, namespace, name, port)
}
