package apiserver

import (
	"cmp"
	"errors"
	"net/url"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/serviceaccount"
)

// serviceAccounts makes the server accept the tokens of service accounts, if
// it has a key to check them with, and issue them, if it has one to sign with.
func (b *builder) serviceAccounts() error {
	o := b.options.ServiceAccounts
	var err error
	if b.keys, err = serviceaccount.LoadKeys(tokenKeyFiles(b.options), o.SigningKeyFile); err != nil {
		return err
	}
	b.identity.Audiences = o.APIAudiences()
	if b.keys.Empty() {
		if len(o.Issuers) > 0 {
			return errors.New("--service-account-issuer needs --service-account-key-file: name the keys by which the issuer's tokens are checked")
		}
		return nil
	}
	b.identity.Tokens = append(b.identity.Tokens, serviceaccount.NewAuthenticator(serviceaccount.AuthenticatorConfig{
		Keys: b.keys, Issuers: o.Issuers, Audiences: o.APIAudiences(), Lookup: o.Lookup,
		Get: serviceaccount.ObjectsOf(b.env), Clock: clock.RealClock{},
	}))
	if !b.keys.Signing() {
		return nil
	}
	b.env.Tokens, err = serviceaccount.NewIssuer(serviceaccount.IssuerConfig{
		Keys: b.keys, Issuer: o.Issuers[0], Audiences: o.APIAudiences(),
		MaxLifetime: o.MaxExpiration, ExtendMounted: o.ExtendExpiration, Clock: clock.RealClock{},
	})
	return err
}

// tokenKeyFiles are the files of the keys that check tokens. The key of the
// serving certificate is one where nothing else is said (document 2, section
// 5), provided that it is of a sort that signs tokens.
func tokenKeyFiles(o *options.Options) []string {
	fallback := o.SecureServing.ServerCert.CertKey.KeyFile
	if len(o.ServiceAccounts.KeyFiles) > 0 || fallback == "" {
		return o.ServiceAccounts.KeyFiles
	}
	if !serviceaccount.CanCheckTokens(fallback) {
		return nil
	}
	return []string{fallback}
}

// addTokenDiscovery lets others check the server's tokens, if its issuer is a
// URL.
func (b *builder) addTokenDiscovery(server *genericapiserver.GenericAPIServer) {
	o := b.options.ServiceAccounts
	if len(o.Issuers) == 0 || b.keys.Empty() {
		return
	}
	own := url.URL{Scheme: "https", Host: server.ExternalAddress, Path: serviceaccount.KeysPath}
	documents, err := serviceaccount.Discovery(o.Issuers[0], cmp.Or(o.JWKSURI, own.String()), b.keys)
	if err != nil {
		klog.Background().Info("No documents of OpenID Connect discovery are served", "reason", err.Error())
		return
	}
	for path, document := range documents {
		server.Handler.NonGoRestfulMux.Handle(path, document)
	}
}
