// Package bootstraptoken authenticates bootstrap tokens (document 2, section 5):
// short-lived tokens, kept as secrets in kube-system, by which a new node asks for
// its certificate.
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens
package bootstraptoken

import (
	"context"
	"crypto/subtle"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/cluster-bootstrap/util/tokens"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Authenticator authenticates bootstrap tokens, which have the form ID.SECRET. A token is
// accepted by the secret that the watch has reported, also while etcd is not available. Before
// it is rejected, the secret is read from etcd, so that a token that has just been created is
// valid. Guesses must not cost that: tokens that no watch has reported are read at a limited
// rate. What is over the limit waits until the watch has begun.
type Authenticator struct {
	secret  func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	clock   clock.PassiveClock
	unknown flowcontrol.PassiveRateLimiter
	watched cache.SharedIndexInformer // nil before Follow
	// wake closes used, which starts the watch: without tokens none is needed.
	wake func()
	used chan struct{}
}

var _ authenticator.Token = &Authenticator{}

// How many tokens that no watch has reported are read a second, and at once.
const (
	unknownRate  = 10
	unknownBurst = 20
)

// syncTimeout bounds how long a token waits for the watch to begin.
const syncTimeout = 5 * time.Second

// errTooMany is the error of a token that is not known while there are too many of them. The
// client gets 401, as for every error of authentication.
var errTooMany = errors.New("there are too many bootstrap tokens that are not known to read their secrets")

// New returns an authenticator that reads secrets by secret.
func New(secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error), clock clock.PassiveClock) *Authenticator {
	used := make(chan struct{})
	return &Authenticator{
		secret: secret, clock: clock, unknown: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(unknownRate, unknownBurst, clock),
		used: used, wake: sync.OnceFunc(func() { close(used) }),
	}
}

// Follow sets the client that watches the secrets of tokens. It is called before Run.
func (a *Authenticator) Follow(client kubernetes.Interface) {
	a.watched = corev1informers.NewFilteredSecretInformer(client, metav1.NamespaceSystem, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("type", string(api.SecretTypeBootstrapToken)).String()
	})
}

// Run watches the secrets of tokens from the first token on, until ctx is done.
func (a *Authenticator) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-a.used:
	}
	a.watched.RunWithContext(ctx)
}

// AuthenticateToken implements authenticator.Token. It has no opinion on a token
// of another form, nor on one that is invalid: the reason is logged, without the
// token, and the client does not learn it. An error means that the secret could not
// be read, or was not because of the limit.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	id, key, err := tokens.ParseToken(token)
	if err != nil {
		return nil, false, nil
	}
	a.wake()
	name := api.BootstrapTokenSecretPrefix + id
	logger := klog.FromContext(ctx).WithValues("secret", klog.KRef(metav1.NamespaceSystem, name))
	secret := a.reported(name, key)
	if secret == nil && !a.unknown.TryAccept() {
		if secret = a.reportedAtFirst(ctx, name, key); secret == nil {
			return nil, false, errTooMany
		}
	}
	if secret != nil {
		if who, why := userOf(secret, id, key, a.clock.Now()); why == "" {
			return &authenticator.Response{User: who}, true, nil
		}
	}
	secret, err = a.secret(ctx, metav1.NamespaceSystem, name)
	if apierrors.IsNotFound(err) {
		logger.V(3).Info("Rejected bootstrap token", "reason", "its secret does not exist")
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	who, why := userOf(secret, id, key, a.clock.Now())
	if why != "" {
		logger.V(3).Info("Rejected bootstrap token", "reason", why)
		return nil, false, nil
	}
	return &authenticator.Response{User: who}, true, nil
}

// reported returns the secret of the name that the watch has reported, if it has the key.
func (a *Authenticator) reported(name, key string) *corev1.Secret {
	if a.watched == nil {
		return nil
	}
	found, exists, err := a.watched.GetStore().GetByKey(metav1.NamespaceSystem + "/" + name)
	if err != nil || !exists {
		return nil
	}
	if secret, ok := found.(*corev1.Secret); ok && hasKey(secret, "", key, time.Time{}) == "" {
		return secret
	}
	return nil
}

// reportedAtFirst waits until the watch has begun, and returns what reported does. Otherwise
// guesses could refuse valid tokens after a start of the server.
func (a *Authenticator) reportedAtFirst(ctx context.Context, name, key string) *corev1.Secret {
	if a.watched == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	select {
	case <-a.watched.HasSyncedChecker().Done():
	case <-ctx.Done():
	}
	return a.reported(name, key)
}

// userOf returns the user of a token, or why the token is invalid.
func userOf(secret *corev1.Secret, id, key string, now time.Time) (who *user.DefaultInfo, why string) {
	for _, valid := range checks {
		if why := valid(secret, id, key, now); why != "" {
			return nil, why
		}
	}
	groups, err := secrets.GetGroups(secret)
	if err != nil {
		return nil, api.BootstrapTokenExtraGroupsKey + ": " + err.Error()
	}
	return &user.DefaultInfo{Name: api.BootstrapUserPrefix + id, Groups: groups}, ""
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
