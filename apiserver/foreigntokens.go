package apiserver

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/authentication"
	"svc.dev/svc/apiserver/authentication/jwt"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/responselimit"
)

// addForeignTokens adds the authenticators of tokens that others issue or review. They
// come after those of the server's own tokens: they may ask another server.
func (i *identity) addForeignTokens(o *options.Options, config *authentication.Config, clock clock.WithTicker) error {
	described, content, err := issuersOf(&o.Authentication)
	if err != nil {
		return err
	}
	if described != nil {
		flag, algorithms := "--oidc-*", o.Authentication.OIDC.SigningAlgorithms
		if o.Authentication.ConfigFile != "" {
			flag, algorithms = "--authentication-config "+o.Authentication.ConfigFile, jwt.SigningAlgorithms()
		}
		if described.Anonymous != nil {
			if o.Authentication.AnonymousSet {
				return fmt.Errorf("%s: anonymous is set there and by --anonymous-auth: leave one out", flag)
			}
			config.Anonymous = config.Anonymous && described.Anonymous.Enabled
			config.AnonymousPaths = described.Anonymous.Conditions
		}
		if i.jwt, err = jwt.New(jwt.Config{
			Initial: described, File: o.Authentication.ConfigFile, Content: content,
			SigningAlgorithms: algorithms, OwnIssuers: o.ServiceAccounts.Issuers, Audiences: config.Audiences, Clock: clock,
		}); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		config.Tokens = append(config.Tokens, i.jwt)
	}
	if o.Authentication.Webhook.ConfigFile == "" {
		return nil
	}
	reviewer, err := newTokenWebhook(o.Authentication.Webhook, config.Audiences)
	if err != nil {
		return fmt.Errorf("--authentication-token-webhook-config-file %s: %w", o.Authentication.Webhook.ConfigFile, err)
	}
	config.Tokens = append(config.Tokens, reviewer)
	return nil
}

// issuersOf returns the configuration of foreign issuers, and the content of its
// file. Both are nil without one.
func issuersOf(o *options.Authentication) (*apiserver.AuthenticationConfiguration, []byte, error) {
	if o.ConfigFile == "" {
		if o.OIDC.IssuerURL == "" {
			return nil, nil, nil
		}
		config, err := o.OIDC.Config()
		return config, nil, err
	}
	content, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--authentication-config: %w", err)
	}
	config, err := jwt.Parse(content)
	if err != nil {
		return nil, nil, fmt.Errorf("--authentication-config %s: %w", o.ConfigFile, err)
	}
	return config, content, nil
}

// newTokenWebhook returns the authenticator that asks a webhook, and caches its
// answers.
func newTokenWebhook(o options.TokenWebhook, audiences authenticator.Audiences) (authenticator.Token, error) {
	config, err := webhookutil.LoadKubeconfig(o.ConfigFile, nil)
	if err != nil {
		return nil, err
	}
	if config.Host == "" {
		return nil, errors.New("it does not say which server to ask; set clusters[].cluster.server and current-context")
	}
	reviewer, err := webhook.New(responselimit.Of(config, responselimit.Review), o.Version, audiences, *genericoptions.DefaultAuthWebhookRetryBackoff())
	if err != nil {
		return nil, err
	}
	return tokencache.New(reviewer, false, o.CacheTTL, o.CacheTTL), nil
}

// close ends the background work. The identity must not be used afterwards.
func (i *identity) close() {
	if i.jwt != nil {
		i.jwt.Close()
	}
}
