package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/authentication"
	"svc.dev/svc/apiserver/authentication/bootstraptoken"
	"svc.dev/svc/apiserver/authentication/jwt"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/authorization/node"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/metrics"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/registry"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/serviceaccount"
)

// identity authenticates and authorizes requests, and issues tokens.
type identity struct {
	authentication.Authenticators
	authentication authentication.Config
	authorizers    *authorization.Authorizers
	keys           *serviceaccount.Keys
	tokens         resource.Tokens               // nil without a signing key
	uses           *metrics.Tokens               // nil behind a host
	jwt            *jwt.Authenticator            // nil without foreign issuers
	bootstrap      *bootstraptoken.Authenticator // nil without bootstrap tokens
}

// newIdentity reads the files that the flags name. The kinds' objects, to which tokens of
// service accounts are bound, are read with the first request.
func newIdentity(o *options.Options, behind *hosted, kinds *registry.Registry, clock clock.WithTicker) (*identity, error) {
	if behind != nil {
		return newHostIdentity(o, behind)
	}
	set, err := o.Gates()
	if err != nil {
		return nil, err
	}
	authorizers := o.Authorization
	authorizers.Nodes = node.Features{BySelectors: set.Enabled(gates.AuthorizeNodeWithSelectors), StorageHealth: set.Enabled(gates.CSIVolumeHealth)}
	made := &identity{uses: metrics.NewTokens()}
	if made.authorizers, err = authorization.New(authorizers); err != nil {
		return nil, err
	}
	config, err := authenticationConfig(o, made.authorizers.AllowsAll, clock)
	if err != nil {
		return nil, err
	}
	if made.keys, err = serviceaccount.LoadKeys(tokenKeyFiles(o), o.ServiceAccounts.SigningKeyFile); err != nil {
		return nil, err
	}
	if made.tokens, err = newTokens(o, made.keys, clock); err != nil {
		return nil, err
	}
	if !made.keys.Empty() {
		config.Tokens = append(config.Tokens, serviceaccount.NewAuthenticator(serviceaccount.AuthenticatorConfig{
			Keys: made.keys, Issuers: o.ServiceAccounts.Issuers, Audiences: config.Audiences, Lookup: o.ServiceAccounts.Lookup,
			Cached: kinds.Cached,
			Get: func(ctx context.Context, gr schema.GroupResource, namespace, name string) (runtime.Object, error) {
				return kinds.Objects(gr).Get(ctx, namespace, name)
			},
			Clock: clock,
			Count: made.uses.Count,
			Label: func(ctx context.Context, secret *corev1.Secret, key, value string) error {
				return labelSecret(ctx, kinds.Objects(corev1.Resource("secrets")), secret, key, value)
			},
			CredentialIDs: hasCredentialIDs(o),
		}))
	}
	if o.Authentication.BootstrapTokens {
		made.bootstrap = newBootstrapTokens(kinds.Objects, clock)
		config.Tokens = append(config.Tokens, authenticator.WrapAudienceAgnosticToken(config.Audiences, made.bootstrap))
	}
	if err := made.addForeignTokens(o, &config, clock); err != nil {
		made.close()
		return nil, err
	}
	made.authentication = config
	if made.Authenticators, err = authentication.New(config); err != nil {
		made.close()
		return nil, err
	}
	return made, nil
}

// labelSecret sets a label of a secret, unless another one has its name by now.
func labelSecret(ctx context.Context, secrets resource.Objects, secret *corev1.Secret, key, value string) error {
	_, err := secrets.Update(ctx, secret.Namespace, secret.Name, false, func(obj runtime.Object) (runtime.Object, error) {
		current, ok := obj.(*corev1.Secret)
		if !ok || current.UID != secret.UID {
			return obj, nil
		}
		if current.Labels == nil {
			current.Labels = map[string]string{}
		}
		current.Labels[key] = value
		return current, nil
	})
	return err
}

// newHostIdentity returns the identity of a server behind a host: the host authenticates
// and authorizes, and issues all tokens.
func newHostIdentity(o *options.Options, behind *hosted) (*identity, error) {
	namespaced := sets.New[schema.GroupResource]()
	for _, kind := range kindsOf(o) {
		if kind.Namespaced {
			namespaced.Insert(kind.Hub.GroupVersion().WithResource(kind.Name).GroupResource())
		}
	}
	decide, err := behind.host.Authorizer(behind.names, func(gr schema.GroupResource) bool { return namespaced.Has(gr) })
	if err != nil {
		return nil, err
	}
	from := behind.authentication
	return &identity{
		Authenticators: authentication.Authenticators{Request: from.Request, Identified: from.Request},
		authentication: authentication.Config{RequestHeader: from.RequestHeader, ClientCA: from.ClientCA},
		authorizers:    &authorization.Authorizers{Authorizer: decide},
		keys:           &serviceaccount.Keys{},
	}, nil
}

// run keeps what authenticates and authorizes requests up to date until ctx is done.
// serverID is the label of metrics.
func (i *identity) run(ctx context.Context, serverID string, clock clock.Clock) {
	var running sync.WaitGroup
	if i.jwt != nil {
		running.Go(func() { i.jwt.Run(ctx) })
	}
	if nodes := i.authorizers.Nodes; nodes != nil {
		running.Go(func() { nodes.Run(ctx, clock) })
	}
	if i.bootstrap != nil {
		running.Go(func() { i.bootstrap.Run(ctx) })
	}
	running.Go(func() { i.authorizers.Reload(ctx, serverID) })
	running.Wait()
}

// authenticationConfig reads the files of the authentication methods. allowsAll reports
// whether every request is authorized.
func authenticationConfig(o *options.Options, allowsAll bool, clock clock.PassiveClock) (authentication.Config, error) {
	config := authentication.Config{
		Clock:         clock,
		CredentialIDs: !o.Release.Before(release.Release{Major: 1, Minor: 32}),
		TokenFile:     o.Authentication.TokenAuthFile,
		// With AlwaysAllow, an anonymous request would have all rights.
		Anonymous: o.Authentication.Anonymous && !allowsAll,
		Audiences: o.ServiceAccounts.APIAudiences(),
	}
	// svc up names files after its flags are checked.
	if err := o.Authentication.CheckAuthorities(); err != nil {
		return config, err
	}
	if file := o.Authentication.ClientCAFile; file != "" {
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-bundle", file)
		if err != nil {
			return config, fmt.Errorf("--client-ca-file: %w", err)
		}
		config.ClientCA = ca
	}
	header, err := o.Authentication.RequestHeader.ToAuthenticationRequestHeaderConfig()
	if err != nil {
		return config, fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	config.RequestHeader = header
	return config, nil
}

// newBootstrapTokens returns the authenticator of bootstrap tokens.
func newBootstrapTokens(objects func(schema.GroupResource) resource.Objects, clock clock.PassiveClock) *bootstraptoken.Authenticator {
	return bootstraptoken.New(func(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
		found, err := objects(corev1.Resource("secrets")).Get(ctx, namespace, name)
		if err != nil {
			return nil, err
		}
		secret, ok := found.(*corev1.Secret)
		if !ok {
			return nil, fmt.Errorf("secret %s/%s is a %T", namespace, name, found)
		}
		return secret, nil
	}, clock)
}

// newTokens returns the issuer of service account tokens, or nil if there is no
// key to sign them with.
func newTokens(o *options.Options, keys *serviceaccount.Keys, clock clock.Clock) (resource.Tokens, error) {
	accounts := o.ServiceAccounts
	if keys.Empty() && len(accounts.Issuers) > 0 {
		return nil, errors.New("--service-account-issuer needs --service-account-key-file: name the keys that verify the issuer's tokens")
	}
	if !keys.Signing() {
		return nil, nil
	}
	return serviceaccount.NewIssuer(serviceaccount.IssuerConfig{
		Keys: keys, Issuer: accounts.Issuers[0], Audiences: accounts.APIAudiences(),
		MaxLifetime: accounts.MaxExpiration, ExtendMounted: accounts.ExtendExpiration, CredentialIDs: hasCredentialIDs(o), Clock: clock,
	})
}

// hasCredentialIDs reports whether the release names the tokens of service accounts in the
// users' extra fields and in audit events (the gate ServiceAccountTokenJTI).
func hasCredentialIDs(o *options.Options) bool {
	return !o.Release.Before(release.Release{Major: 1, Minor: 30})
}

// tokenKeyFiles returns the files of the keys that verify tokens. By default that
// is the key of the serving certificate (document 2, section 5), if its
// algorithm can sign tokens.
func tokenKeyFiles(o *options.Options) []string {
	fallback := o.SecureServing.ServerCert.CertKey.KeyFile
	if len(o.ServiceAccounts.KeyFiles) > 0 || fallback == "" {
		return o.ServiceAccounts.KeyFiles
	}
	if !serviceaccount.CanVerifyTokens(fallback) {
		return nil
	}
	return []string{fallback}
}

// addTokenDiscovery serves the documents of OpenID Connect discovery, by which other
// servers verify the tokens of this one, if the issuer is a URL.
func (i *identity) addTokenDiscovery(o options.ServiceAccounts, server *genericapiserver.GenericAPIServer) {
	if len(o.Issuers) == 0 || i.keys.Empty() {
		return
	}
	keysURI := serviceaccount.KeysAt(server.ExternalAddress)
	if o.JWKSURI != "" {
		keysURI = func(*http.Request) string { return o.JWKSURI }
	}
	documents, err := serviceaccount.Discovery(o.Issuers[0], keysURI, i.keys)
	if err != nil {
		klog.Background().Info("Skipped serving OpenID Connect discovery documents", "reason", err.Error())
		return
	}
	for path, document := range documents {
		server.Handler.NonGoRestfulMux.Handle(path, document)
	}
}
