package authorization

import (
	"errors"
	"fmt"
	"time"

	authzconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	webhookmetrics "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"

	"svc.dev/svc/apiserver/responselimit"
)

// webhookTimeout is that of a webhook that flags describe.
const webhookTimeout = 30 * time.Second

// newWebhook returns the authorizer that asks a server by SubjectAccessReviews.
func newWebhook(name string, config *authzconfig.WebhookConfiguration) (Authorizer, error) {
	if config.ConnectionInfo.Type != authzconfig.AuthorizationWebhookConnectionInfoTypeKubeConfigFile {
		return nil, errors.New("webhook.connectionInfo.type: unsupported value: must be KubeConfigFile")
	}
	client, err := webhookutil.LoadKubeconfig(*config.ConnectionInfo.KubeConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", *config.ConnectionInfo.KubeConfigFile, err)
	}
	client.Timeout = config.Timeout.Duration
	onError := authorizer.DecisionNoOpinion
	if config.FailurePolicy == authzconfig.FailurePolicyDeny {
		onError = authorizer.DecisionDeny
	}
	var authorizedTTL, unauthorizedTTL time.Duration
	if config.CacheAuthorizedRequests {
		authorizedTTL = config.AuthorizedTTL.Duration
	}
	if config.CacheUnauthorizedRequests {
		unauthorizedTTL = config.UnauthorizedTTL.Duration
	}
	webhookmetrics.RegisterWebhookMetrics()
	return webhook.New(responselimit.Of(client, responselimit.Review), config.SubjectAccessReviewVersion, authorizedTTL, unauthorizedTTL, *webhook.DefaultRetryBackoff(), onError,
		config.MatchConditions, name, instruments{
			RequestMetrics: webhookmetrics.NoopRequestMetrics{},
			WebhookMetrics: webhookmetrics.NewWebhookMetrics(),
			MatcherMetrics: authorizationcel.NewMatcherMetrics(),
		}, authorizationcel.NewDefaultCompiler())
}

// instruments are the metrics of a webhook.
type instruments struct {
	webhookmetrics.RequestMetrics
	webhookmetrics.WebhookMetrics
	authorizationcel.MatcherMetrics
}
