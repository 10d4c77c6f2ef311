package objects

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// A token is renewed after 80 % of its lifetime or at the age of a day, minus a
// jitter of up to tokenJitter. After a failure, the retry is after tokenRetry.
const (
	tokenMaxAge = 24 * time.Hour
	tokenJitter = 10 * time.Second
	tokenRetry  = time.Minute
)

// tokens are the tokens of pods.
type tokens struct {
	byKey map[tokenKey]*token
}

type tokenKey struct {
	pod               types.UID
	account, audience string
	seconds           int64
}

type token struct {
	text           string
	expires, renew time.Time
}

// Token returns a token of the pod's service account for an audience, bound to the
// pod. It is cached until its renewal is due, and if the renewal fails until it
// expires. When the renewal is due, Options.Changed is called with the pod if it
// is registered.
func (s *Store) Token(ctx context.Context, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection) (string, error) {
	key := tokenKey{pod: pod.UID, account: AccountOf(pod), audience: source.Audience}
	if source.ExpirationSeconds != nil {
		key.seconds = *source.ExpirationSeconds
	}
	s.mutex.Lock()
	held := s.tokens.byKey[key]
	s.mutex.Unlock()
	now := s.Clock.Now()
	if held != nil && now.Before(held.renew) {
		return held.text, nil
	}
	issued, err := s.issue(ctx, pod, source)
	switch {
	case err == nil:
	case held == nil:
		return "", fmt.Errorf("failed to fetch token: %w", err)
	case now.After(held.expires):
		return "", fmt.Errorf("token of service account %s/%s expired and refresh failed: %w", pod.Namespace, key.account, err)
	default:
		logger := klog.FromContext(ctx).WithValues("pod", klog.KObj(pod), "serviceAccount", key.account)
		if pod.DeletionTimestamp != nil || apierrors.IsNotFound(err) {
			logger.V(4).Info("Failed to refresh service account token of a pod that ends", "err", err)
		} else {
			logger.Error(err, "Failed to refresh service account token")
		}
		issued = &token{text: held.text, expires: held.expires, renew: now.Add(tokenRetry)}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if _, registered := s.pods[pod.UID]; registered && !s.closed {
		s.tokens.byKey[key] = issued
		s.arm(issued.renew)
	}
	return issued.text, nil
}

func (s *Store) issue(ctx context.Context, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection) (*token, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: AccountOf(pod)}}
	if err := s.Client.SubResource("token").Create(unlogged(ctx), account, request); err != nil {
		return nil, err
	}
	return &token{
		text: request.Status.Token, expires: request.Status.ExpirationTimestamp.Time,
		renew: renewal(request, s.Random()),
	}, nil
}

// AccountOf returns the name of a pod's service account. A pod that an API server without the
// admission plugin ServiceAccount has stored may name none.
func AccountOf(pod *corev1.Pod) string { return cmp.Or(pod.Spec.ServiceAccountName, "default") }

// renewal returns when a new token is to be renewed.
func renewal(issued *authenticationv1.TokenRequest, random float64) time.Time {
	expires := issued.Status.ExpirationTimestamp.Time
	if issued.Spec.ExpirationSeconds == nil {
		return expires
	}
	life := time.Duration(*issued.Spec.ExpirationSeconds) * time.Second
	at := expires.Add(-life / 5)
	if old := expires.Add(-life).Add(tokenMaxAge); old.Before(at) {
		at = old
	}
	return at.Add(-time.Duration(random * float64(tokenJitter)))
}

func (t *tokens) forget(pod types.UID) {
	maps.DeleteFunc(t.byKey, func(key tokenKey, _ *token) bool { return key.pod == pod })
}
