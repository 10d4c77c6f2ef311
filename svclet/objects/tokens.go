package objects

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// A token is renewed when four fifths of its time are over or it is a day old,
// and up to tokenJitter earlier. When that fails, it is tried again after
// tokenRetry.
const (
	tokenMaxAge = 24 * time.Hour
	tokenJitter = 10 * time.Second
	tokenRetry  = time.Minute
	// tokenCheck is how often it is at least looked whether a token is due, for
	// the clock may jump, and machines sleep.
	tokenCheck = 10 * time.Minute
)

// tokens are those that pods have, and a timer for the next to be renewed.
type tokens struct {
	byKey map[tokenKey]*token
	timer clock.Timer
	at    time.Time
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

// Token is a token of the pod's service account for an audience, bound to the
// pod: the one that was issued before, until it is due for renewal, and beyond
// for as long as it is valid if the API does not issue another. The pod, if it
// is registered, is told of by Options.Changed when that is.
func (s *Store) Token(ctx context.Context, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection) (string, error) {
	key := tokenKey{pod: pod.UID, account: pod.Spec.ServiceAccountName, audience: source.Audience}
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
		klog.FromContext(ctx).Error(err, "Failed to refresh service account token", "pod", klog.KObj(pod), "serviceAccount", key.account)
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
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}}
	if err := s.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, err
	}
	return &token{
		text: request.Status.Token, expires: request.Status.ExpirationTimestamp.Time,
		renew: renewal(request, s.Random()),
	}, nil
}

// renewal is when a token that has just been issued is to be renewed.
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

// arm sets the timer, if it is set later than that or not at all.
func (s *Store) arm(at time.Time) {
	if s.tokens.timer != nil && !at.Before(s.tokens.at) {
		return
	}
	s.tokens.disarm()
	s.tokens.at = at
	s.tokens.timer = s.Clock.AfterFunc(min(at.Sub(s.Clock.Now()), tokenCheck), s.due)
}

func (t *tokens) disarm() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// due is called by the timer.
func (s *Store) due() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.closed {
		s.running.Go(s.renew)
	}
}

// renew has the pods whose tokens are due ask for new ones.
func (s *Store) renew() {
	s.mutex.Lock()
	s.tokens.disarm()
	now := s.Clock.Now()
	due := map[types.UID]bool{}
	var next time.Time
	for key, t := range s.tokens.byKey {
		at := t.renew
		if !now.Before(at) {
			due[key.pod] = true
			// In case that the pod does not ask.
			at = now.Add(tokenRetry)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if !next.IsZero() && !s.closed {
		s.arm(next)
	}
	s.mutex.Unlock()
	if len(due) > 0 {
		s.Changed(slices.Sorted(maps.Keys(due)))
	}
}

func (t *tokens) forget(pod types.UID) {
	maps.DeleteFunc(t.byKey, func(key tokenKey, _ *token) bool { return key.pod == pod })
	if len(t.byKey) == 0 {
		t.disarm()
	}
}
