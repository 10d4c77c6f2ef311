// Package bootstraptoken authenticates bootstrap tokens (document 2, section 5):
// short-lived tokens, kept as secrets in kube-system, by which a new node asks for
// its certificate.
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens
package bootstraptoken

import (
	"context"
	"crypto/subtle"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/cluster-bootstrap/util/tokens"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Authenticator authenticates bootstrap tokens, which have the form ID.SECRET.
type Authenticator struct {
	// Secret reads a secret.
	Secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	Clock  clock.PassiveClock
}

var _ authenticator.Token = Authenticator{}

// AuthenticateToken implements authenticator.Token. It has no opinion on a token
// of another form, nor on one that is invalid: the reason is logged, without the
// token, and the client does not learn it. An error means that the secret could not
// be read.
func (a Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	id, key, err := tokens.ParseToken(token)
	if err != nil {
		return nil, false, nil
	}
	name := api.BootstrapTokenSecretPrefix + id
	logger := klog.FromContext(ctx).WithValues("secret", klog.KRef(metav1.NamespaceSystem, name))
	secret, err := a.Secret(ctx, metav1.NamespaceSystem, name)
	if apierrors.IsNotFound(err) {
		logger.V(3).Info("Rejected bootstrap token", "reason", "its secret does not exist")
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	for _, valid := range checks {
		if why := valid(secret, id, key, a.Clock.Now()); why != "" {
			logger.V(3).Info("Rejected bootstrap token", "reason", why)
			return nil, false, nil
		}
	}
	groups, err := secrets.GetGroups(secret)
	if err != nil {
		logger.V(3).Info("Rejected bootstrap token", "reason", api.BootstrapTokenExtraGroupsKey+": "+err.Error())
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: api.BootstrapUserPrefix + id, Groups: groups}}, true, nil
}

// checks are the rules of a valid token, in the order in which they are applied.
// Each returns why the token is invalid, or "".
var checks = []func(secret *corev1.Secret, id, key string, now time.Time) string{
	isNotBeingDeleted, isBootstrapToken, hasKey, hasID, hasNotExpired, authenticates,
}

func isNotBeingDeleted(s *corev1.Secret, _, _ string, _ time.Time) string {
	if s.DeletionTimestamp != nil {
		return "its secret is being deleted"
	}
	return ""
}

func isBootstrapToken(s *corev1.Secret, _, _ string, _ time.Time) string {
	if s.Type != api.SecretTypeBootstrapToken {
		return "its secret is not of type " + string(api.SecretTypeBootstrapToken)
	}
	return ""
}

func hasKey(s *corev1.Secret, _, key string, _ time.Time) string {
	if subtle.ConstantTimeCompare(s.Data[api.BootstrapTokenSecretKey], []byte(key)) != 1 {
		return api.BootstrapTokenSecretKey + " differs"
	}
	return ""
}

func hasID(s *corev1.Secret, id, _ string, _ time.Time) string {
	if secrets.GetData(s, api.BootstrapTokenIDKey) != id {
		return api.BootstrapTokenIDKey + " differs from the name of the secret"
	}
	return ""
}

func hasNotExpired(s *corev1.Secret, _, _ string, now time.Time) string {
	if secrets.HasExpired(s, now) {
		return "it has expired"
	}
	return ""
}

func authenticates(s *corev1.Secret, _, _ string, _ time.Time) string {
	if secrets.GetData(s, api.BootstrapTokenUsageAuthentication) != "true" {
		return api.BootstrapTokenUsageAuthentication + ` is not "true"`
	}
	return ""
}
