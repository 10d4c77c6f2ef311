package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/groupdomain"
	"svc.dev/svc/apiserver/host"
	"svc.dev/svc/apiserver/hostcerts"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/registration"
)

// hosted is what a server behind a host has beside a standalone one: names, and the
// host that it asks.
type hosted struct {
	names          *groupdomain.Names
	host           *host.Host
	authentication *host.Authentication
	namespaces     *host.Namespaces
	certificates   *hostcerts.Keeper // nil if they are in files
}

// newHosted connects to the host. It returns nil for a standalone server.
func newHosted(o *options.Options, clock clock.Clock) (*hosted, error) {
	if o.Host.GroupDomain == "" {
		return nil, nil
	}
	a := &hosted{}
	var err error
	if a.names, err = groupdomain.New(o.Host.GroupDomain); err != nil {
		return nil, err
	}
	settings := o.Host
	settings.TokenTTL = o.Authentication.Webhook.CacheTTL
	settings.AuthorizedTTL, settings.UnauthorizedTTL = o.Authorization.Webhook.AuthorizedTTL, o.Authorization.Webhook.UnauthorizedTTL
	if a.host, err = host.Connect(settings); err != nil {
		return nil, err
	}
	if a.authentication, err = a.host.Authentication(); err != nil {
		return nil, err
	}
	if a.namespaces, err = a.host.Namespaces(); err != nil {
		return nil, err
	}
	if !o.HostCertificates.Enabled() {
		return a, nil
	}
	return a, a.keepCertificates(o, clock)
}

// certificatePatience is how long the host may take to answer about the Secrets of
// certificates before the server does not start.
const certificatePatience = 30 * time.Second

// keepCertificates makes the certificates in Secrets of the host if they do not exist,
// and makes the server use them.
func (a *hosted) keepCertificates(o *options.Options, clock clock.Clock) error {
	client, config := a.host.Client()
	services, err := aggregatorclient.NewForConfig(config)
	if err != nil {
		return err
	}
	a.certificates, err = hostcerts.New(hostcerts.Config{
		Options: o.HostCertificates, Client: client, APIServices: services, EtcdServers: o.Etcd.Servers,
		Directory: o.SecureServing.ServerCert.CertDirectory, Clock: clock,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), certificatePatience)
	defer cancel()
	if own, ok := a.certificates.Service(); ok {
		groups, err := registration.New(o.Release, a.names.Domain())
		if err != nil {
			return err
		}
		if err := groups.CheckOwn(ctx, services, own); err != nil {
			return fmt.Errorf("--group-domain=%s: %w", a.names.Domain(), err)
		}
	}
	if err := a.certificates.Start(ctx); err != nil {
		return err
	}
	if serving := a.certificates.Serving(); serving != nil {
		o.SecureServing.ServerCert.GeneratedCert = serving
	}
	if files, ok := a.certificates.Etcd(); ok {
		o.Etcd.TrustedCAFile, o.Etcd.CertFile, o.Etcd.KeyFile = files.CAFile, files.Client, files.Client
	}
	return nil
}

// run keeps the certificates until ctx is done.
func (a *hosted) run(ctx context.Context) {
	if a != nil && a.certificates != nil {
		a.certificates.Run(ctx)
	}
}

// domain returns the group domain.
func (a *hosted) domain() string {
	if a == nil {
		return kubernetesDomain
	}
	return a.names.Domain()
}

// domainFilter wraps the whole chain: it serves the names of the domain.
func (c *chain) domainFilter(handler http.Handler, config *genericapiserver.Config) http.Handler {
	if c.hosted == nil {
		return handler
	}
	return groupdomain.Filter(handler, c.domainConfig(config))
}

// domainConfig returns what the translation of names needs to know.
func (c *chain) domainConfig(config *genericapiserver.Config) groupdomain.Config {
	kinds := map[schema.GroupVersionResource]schema.GroupVersionKind{}
	proxied := sets.New[string]()
	for _, kind := range c.stores.kinds {
		for _, gvk := range kind.GVKs() {
			kinds[gvk.GroupVersion().WithResource(kind.Name)] = gvk
		}
		for _, connect := range kind.Connects {
			proxied.Insert(connect.Name)
		}
	}
	return groupdomain.Config{
		Names: c.hosted.names, FleetName: c.options.Host.FleetName, Scheme: c.stores.scheme,
		Kinds: kinds, Proxied: proxied, MaxBody: config.MaxRequestBodyBytes,
		Compress: config.FeatureGate.Enabled(genericfeatures.APIResponseCompression),
	}
}
