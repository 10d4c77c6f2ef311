// Package host owns what an aggregated server has from its host: the identity of
// users, the decision what they may do, and namespaces.
package host

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/groupdomain"
	"svc.dev/svc/internal/connection"
)

// Options are the flags of an aggregated server.
type Options struct {
	// GroupDomain is the domain of the API groups; empty for a standalone server.
	GroupDomain string
	// FleetName is the name of the fleet, which is in the path of its own address.
	FleetName string
	// Kubeconfig says how to reach the host; empty in a pod of the host.
	Kubeconfig string
	// Namespaces are the namespaces of the host that the fleet serves beside Internal;
	// empty for all.
	Namespaces []string
	// TokenTTL is how long the host's answers about a token are used, AuthorizedTTL and
	// UnauthorizedTTL how long its decisions are.
	TokenTTL, AuthorizedTTL, UnauthorizedTTL time.Duration
}

// Internal returns the namespaces that every fleet serves: of the leases of its controllers
// and of its nodes, and of the events of nodes.
func Internal() []string { return []string{"default", "kube-node-lease", "kube-system"} }

// served returns the names of all namespaces that the fleet serves, sorted; empty if it
// serves all.
func (o Options) served() []string {
	if len(o.Namespaces) == 0 {
		return nil
	}
	all := slices.Concat(Internal(), o.Namespaces)
	slices.Sort(all)
	return slices.Compact(all)
}

// firstAnswer is how long the host may take for its first answer.
const firstAnswer = 30 * time.Second

// Host is the host of an aggregated server.
type Host struct {
	config *rest.Config
	client kubernetes.Interface
	file   string
	Options
}

// Connect returns the host. It sends no request.
func Connect(o Options) (*Host, error) {
	config, err := clientConfig(o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--host-kubeconfig: %w", err)
	}
	config.UserAgent = "svc"
	// Each request of a user may need an answer of the host.
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--host-kubeconfig: %s: %w", cmp.Or(o.Kubeconfig, "in the pod"), err)
	}
	return &Host{config: config, client: client, file: o.Kubeconfig, Options: o}, nil
}

// Client returns the client of the host, and its configuration.
func (h *Host) Client() (kubernetes.Interface, *rest.Config) { return h.client, h.config }

func clientConfig(file string) (*rest.Config, error) {
	if file == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("%w; outside of a pod of the host, name a kubeconfig", err)
		}
		return config, nil
	}
	return connection.Read(file)
}

// Authentication is how the host's users are recognised.
type Authentication struct {
	// Request recognises the user whom the host names in the headers of a request that
	// it forwards, and users of the host who connect directly.
	Request authenticator.Request
	// RequestHeader are the headers, and the authorities of the host's proxy.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// ClientCA are all authorities of client certificates.
	ClientCA dynamiccertificates.CAContentProvider
}

// Authentication reads the configuration that the host publishes for its aggregated
// servers (the ConfigMap extension-apiserver-authentication), which is read again
// when it changes.
func (h *Host) Authentication() (*Authentication, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	o := genericoptions.NewDelegatingAuthenticationOptions()
	o.RemoteKubeConfigFile = h.file
	o.CacheTTL = h.TokenTTL
	o.RequestHeader.UIDHeaders = []string{"x-remote-uid"}
	var info genericapiserver.AuthenticationInfo
	serving := &genericapiserver.SecureServingInfo{}
	if err := o.ApplyTo(&info, serving, nil); err != nil {
		return nil, fmt.Errorf("read from the host how it authenticates: %w", err)
	}
	return &Authentication{Request: info.Authenticator, RequestHeader: info.RequestHeaderConfig, ClientCA: serving.ClientCA}, nil
}

// check asks the host for what Authentication reads, for an error that names the remedy.
func (h *Host) check() error {
	const namespace, name = metav1.NamespaceSystem, "extension-apiserver-authentication"
	ctx, cancel := context.WithTimeout(context.Background(), firstAnswer)
	defer cancel()
	_, err := h.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return nil
	}
	subject := "--host-kubeconfig: " + h.file
	if h.file == "" {
		subject = "the service account of the pod, without --host-kubeconfig"
	}
	var request *url.Error
	var untrusted *tls.CertificateVerificationError
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: the host %s rejects the credentials: use those of a user of this host", subject, h.config.Host)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: %w: bind its role extension-apiserver-authentication-reader to the user", subject, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: the host %s has no ConfigMap %s in the namespace %s: its API server must run with --requestheader-client-ca-file", subject, h.config.Host, name, namespace)
	case errors.As(err, &untrusted):
		return fmt.Errorf("%s: the certificate of the host %s is not trusted: %w: use the authority of this host", subject, h.config.Host, untrusted.Err)
	case errors.As(err, &request):
		return fmt.Errorf("%s: the host %s does not answer: %w: start it, or correct the address", subject, h.config.Host, request.Err)
	}
	return fmt.Errorf("%s: the host %s: %w", subject, h.config.Host, err)
}

// Authorizer returns the authorizer that asks the host, in the names of the domain.
// namespaced reports whether a resource is known to be in namespaces.
func (h *Host) Authorizer(names *groupdomain.Names, namespaced func(schema.GroupResource) bool) (authorization.Authorizer, error) {
	review := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: h.client.AuthorizationV1(),
		AllowCacheTTL:             h.AuthorizedTTL,
		DenyCacheTTL:              h.UnauthorizedTTL,
		WebhookRetryBackoff:       genericoptions.DefaultAuthWebhookRetryBackoff(),
	}
	delegated, err := review.New()
	if err != nil {
		return nil, err
	}
	return &access{host: delegated, names: names, fleet: h.FleetName, served: h.served(), namespaced: namespaced}, nil
}

// Namespaces returns what serves the host's namespaces, or those that the fleet serves.
func (h *Host) Namespaces() (*Namespaces, error) { return newNamespaces(h.config, h.served()) }

var _ authorizer.Authorizer = &access{}
