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
	"k8s.io/client-go/rest"

	"svc.dev/svc/apiserver/responselimit"
)

// webhookTimeout is that of a webhook that flags describe.
const webhookTimeout = 30 * time.Second

// webhook returns the authorizer that asks a server by SubjectAccessReviews: the i-th of the
// listed ones. label is its name in metrics, content that of the file.
func (c *Config) webhook(i int, content, label string, config *authzconfig.WebhookConfiguration) (Authorizer, error) {
	const field = ".webhook.connectionInfo"
	if config.ConnectionInfo.Type != authzconfig.AuthorizationWebhookConnectionInfoTypeKubeConfigFile {
		return nil, c.problem(i, field+".type", content, errors.New("unsupported value: must be KubeConfigFile"))
	}
	file := *config.ConnectionInfo.KubeConfigFile
	client, err := webhookutil.LoadKubeconfig(file, nil)
	if err != nil {
		return nil, c.problem(i, field+".kubeConfigFile", content, fmt.Errorf("%s: %w", file, err))
	}
	hook, err := newWebhook(client, label, config)
	if err != nil {
		return nil, c.problem(i, "", content, err)
	}
	return hook, nil
}

// newWebhook returns the authorizer of a webhook that the client connects to.
func newWebhook(client *rest.Config, label string, config *authzconfig.WebhookConfiguration) (Authorizer, error) {
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
		config.MatchConditions, label, instruments{
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
