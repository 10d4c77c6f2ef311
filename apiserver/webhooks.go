package apiserver

import (
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"svc.dev/svc/apiserver/responselimit"
)

// reviewLimit is how much of the response of a webhook is read besides four times the
// size of the request. A response of an admission webhook has a patch in base64, of an
// object that bodycheck limits to 3 MiB; that of a conversion webhook has the objects of
// the request.
const reviewLimit = 16 << 20

// bounded limits the responses of webhooks: the libraries read them whole into memory.
func bounded(wrap webhook.AuthenticationInfoResolverWrapper) webhook.AuthenticationInfoResolverWrapper {
	return func(delegate webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		inner := wrap(delegate)
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
				return withLimit(inner.ClientConfigFor(hostPort))
			},
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				return withLimit(inner.ClientConfigForService(name, namespace, port))
			},
		}
	}
}

func withLimit(config *rest.Config, err error) (*rest.Config, error) {
	if err != nil {
		return nil, err
	}
	return responselimit.Of(config, reviewLimit), nil
}
