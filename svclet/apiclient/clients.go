package apiclient

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/internal/clientcert"
)

// Clients reach the API server over one connection, and know kinds by their Go
// types. Core and Client have a rate limit if one is configured. Heartbeats and
// Coordination, with which the node reports that it is alive, and which events use
// with a limit of their own, have none, nor have Discovery and Networking, which only watch.
type Clients struct {
	Core, Heartbeats, Coordination, Discovery, Networking rest.Interface

	Client client.WithWatch
	clock  clock.PassiveClock

	mu      sync.Mutex
	classes map[string]runtimeClass
}

// NewScheme returns a scheme with the kinds that an agent reads or writes.
func NewScheme() (*apiruntime.Scheme, error) {
	s := apiruntime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	builder := apiruntime.NewSchemeBuilder(corev1.AddToScheme, coordinationv1.AddToScheme, nodev1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, storagev1.AddToScheme,
		certificatesv1.AddToScheme, certificatesv1beta1.AddToScheme, certificatesv1alpha1.AddToScheme)
	return s, builder.AddToScheme(s)
}

// New returns the clients that config describes. A QPS of 0 means no limit: the
// server has flow control. New sends no request.
func New(config *rest.Config, c clock.PassiveClock) (*Clients, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	if config.QPS > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	}
	config.QPS = -1
	config.ContentType = wireType(config.ContentType)
	config.AcceptContentTypes = apiruntime.ContentTypeProtobuf + "," + apiruntime.ContentTypeJSON
	from := config.TLSClientConfig
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &unauthorized{next, from, c} })
	if config, err = clientcert.Renewed(config); err != nil {
		return nil, fmt.Errorf("--svcconfig: %w", err)
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	of := func(gv schema.GroupVersion, path string, limit flowcontrol.RateLimiter) (rest.Interface, error) {
		group := rest.CopyConfig(config)
		group.RateLimiter = limit
		group.GroupVersion, group.APIPath = &gv, path
		group.NegotiatedSerializer = codecs.WithoutConversion()
		return rest.RESTClientForConfigAndClient(group, httpClient)
	}
	a := &Clients{clock: c, classes: map[string]runtimeClass{}}
	if a.Core, err = of(corev1.SchemeGroupVersion, "/api", config.RateLimiter); err != nil {
		return nil, err
	}
	if a.Heartbeats, err = of(corev1.SchemeGroupVersion, "/api", nil); err != nil {
		return nil, err
	}
	if a.Coordination, err = of(coordinationv1.SchemeGroupVersion, "/apis", nil); err != nil {
		return nil, err
	}
	if a.Discovery, err = of(discoveryv1.SchemeGroupVersion, "/apis", nil); err != nil {
		return nil, err
	}
	if a.Networking, err = of(networkingv1.SchemeGroupVersion, "/apis", nil); err != nil {
		return nil, err
	}
	a.Client, err = client.NewWithWatch(config, client.Options{Scheme: scheme, HTTPClient: httpClient, Mapper: mapper()})
	return a, err
}

// wireType returns the content type of requests for the one that
// --svc-api-content-type names. svc's name of protobuf stands for that of Kubernetes, which every API
// server knows.
func wireType(contentType string) string {
	if contentType == apiruntime.ContentTypeJSON {
		return contentType
	}
	return apiruntime.ContentTypeProtobuf
}

// mapper maps the kinds that Client reads to their resources, without discovery.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ConfigMap", "Secret", "Service", "ServiceAccount", "PersistentVolumeClaim", "Pod"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	m.Add(certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"), meta.RESTScopeNamespace)
	for _, gvk := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("PersistentVolume"),
		corev1.SchemeGroupVersion.WithKind("Node"),
		nodev1.SchemeGroupVersion.WithKind("RuntimeClass"),
		storagev1.SchemeGroupVersion.WithKind("CSIDriver"),
		storagev1.SchemeGroupVersion.WithKind("CSINode"),
		storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"),
		authenticationv1.SchemeGroupVersion.WithKind("TokenReview"),
		authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
		certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"),
		certificatesv1beta1.SchemeGroupVersion.WithKind("ClusterTrustBundle"),
		certificatesv1alpha1.SchemeGroupVersion.WithKind("ClusterTrustBundle"),
	} {
		m.Add(gvk, meta.RESTScopeRoot)
	}
	return m
}

// runtimeClass is the handler of a RuntimeClass, which is immutable, and when it
// was read.
type runtimeClass struct {
	handler string
	read    time.Time
}

// classAge is how long a RuntimeClass is cached: it may be replaced by another of
// its name.
const classAge = time.Minute

// RuntimeHandler returns the handler of a RuntimeClass.
func (a *Clients) RuntimeHandler(ctx context.Context, class string) (string, error) {
	a.mu.Lock()
	known, found := a.classes[class]
	a.mu.Unlock()
	if found && a.clock.Since(known.read) < classAge {
		return known.handler, nil
	}
	var object nodev1.RuntimeClass
	if err := a.Client.Get(ctx, client.ObjectKey{Name: class}, &object); err != nil {
		return "", fmt.Errorf("failed to get RuntimeClass %q: %w", class, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.classes[class] = runtimeClass{object.Handler, a.clock.Now()}
	return object.Handler, nil
}
