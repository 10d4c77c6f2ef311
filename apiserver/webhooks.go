package apiserver

import (
	"fmt"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"svc.dev/svc/apiserver/groupdomain"
	"svc.dev/svc/apiserver/responselimit"
)

// reviewLimit is how much of the response of a webhook is read besides four times the
// size of the request. A response of an admission webhook has a patch in base64, of an
// object that bodycheck limits to 3 MiB; that of a conversion webhook has the objects of
// the request.
const reviewLimit = 16 << 20

// bounded limits the responses of webhooks: the libraries read them whole into memory.
func bounded(wrap webhook.AuthenticationInfoResolverWrapper) webhook.AuthenticationInfoResolverWrapper {
	return onEach(wrap, func(config *rest.Config) *rest.Config { return responselimit.Of(config, reviewLimit) })
}

// reviewsInDomain sends reviews in the domain's names to the webhooks whose
// configurations say so.
func (c *chain) reviewsInDomain(wrap webhook.AuthenticationInfoResolverWrapper, config *genericapiserver.Config) (webhook.AuthenticationInfoResolverWrapper, error) {
	of := c.clients.informers.Admissionregistration().V1()
	for _, informer := range []cache.SharedIndexInformer{of.MutatingWebhookConfigurations().Informer(), of.ValidatingWebhookConfigurations().Informer()} {
		if err := informer.SetTransform(groupdomain.MarkReviews); err != nil {
			return nil, fmt.Errorf("webhook configurations: %w", err)
		}
	}
	return c.translatingReviews(wrap, config), nil
}

// conversionsInDomain sends reviews in the domain's names to the conversion webhooks whose
// definitions say so; markConversions marks these.
func (c *chain) conversionsInDomain(wrap webhook.AuthenticationInfoResolverWrapper, config *genericapiserver.Config) webhook.AuthenticationInfoResolverWrapper {
	if c.hosted == nil {
		return wrap
	}
	return c.translatingReviews(wrap, config)
}

// markConversions is the transform function of definitions: of a server behind a host.
func (c *chain) markConversions(transform cache.TransformFunc) cache.TransformFunc {
	if c.hosted == nil {
		return transform
	}
	return func(obj any) (any, error) {
		obj, err := transform(obj)
		if err != nil {
			return nil, err
		}
		return groupdomain.MarkReviews(obj)
	}
}

// translatingReviews translates the reviews of marked webhooks.
func (c *chain) translatingReviews(wrap webhook.AuthenticationInfoResolverWrapper, config *genericapiserver.Config) webhook.AuthenticationInfoResolverWrapper {
	reviews := groupdomain.NewReviews(c.domainConfig(config))
	return onEach(wrap, func(config *rest.Config) *rest.Config {
		config = rest.CopyConfig(config)
		config.Wrap(reviews.Wrap)
		return config
	})
}

// onEach changes the connections to webhooks.
func onEach(wrap webhook.AuthenticationInfoResolverWrapper, change func(*rest.Config) *rest.Config) webhook.AuthenticationInfoResolverWrapper {
	return func(delegate webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		inner := wrap(delegate)
		changed := func(config *rest.Config, err error) (*rest.Config, error) {
			if err != nil {
				return nil, err
			}
			return change(config), nil
		}
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
				return changed(inner.ClientConfigFor(hostPort))
			},
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				return changed(inner.ClientConfigForService(name, namespace, port))
			},
		}
	}
}
