package csi

import (
	"context"
	"maps"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/objects"
)

// tokenMaxAge is the age at which a token is renewed at the latest: kubelet's. A shorter one
// is renewed after 80 % of its life.
const tokenMaxAge = 24 * time.Hour

// tokens are the tokens of pods for drivers, until they are to be renewed. The zero value
// has none.
type tokens struct {
	mu  sync.Mutex
	all map[tokenKey]token
}

type tokenKey struct {
	pod               types.UID
	account, audience string
	seconds           int64
}

type token struct {
	authenticationv1.TokenRequestStatus
	renew time.Time
}

func (t *tokens) get(key tokenKey) (token, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held, found := t.all[key]
	return held, found
}

func (t *tokens) set(key tokenKey, held token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[tokenKey]token{}
	}
	t.all[key] = held
}

// forget removes the tokens of a pod.
func (t *tokens) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.all, func(key tokenKey, _ token) bool { return key.pod == uid })
}

// token returns a token of the pod's service account that is bound to the pod. It is kept
// until its renewal is due and, if the renewal fails, until it expires.
func (p *publication) token(ctx context.Context, wanted storagev1.TokenRequest) (authenticationv1.TokenRequestStatus, error) {
	key := tokenKey{p.Pod.UID, objects.AccountOf(p.Pod), wanted.Audience, ptr.Deref(wanted.ExpirationSeconds, 0)}
	now := p.o.Clock.Now()
	held, found := p.tokens.get(key)
	if found && now.Before(held.renew) {
		return held.TokenRequestStatus, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: wanted.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Pod.Name, UID: p.Pod.UID},
	}}
	if wanted.Audience != "" {
		request.Spec.Audiences = []string{wanted.Audience}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.Pod.Namespace, Name: key.account}}
	err := p.o.Client.SubResource("token").Create(ctx, account, request)
	switch {
	case err == nil:
		life := request.Status.ExpirationTimestamp.Sub(now)
		p.tokens.set(key, token{request.Status, now.Add(min(life-life/5, tokenMaxAge))})
		return request.Status, nil
	case found && now.Before(held.ExpirationTimestamp.Time):
		klog.FromContext(ctx).Error(err, "Failed to renew the token of a service account for a CSI driver", "driver", p.record.Driver, "pod", klog.KObj(p.Pod), "serviceAccount", key.account)
		return held.TokenRequestStatus, nil
	}
	return authenticationv1.TokenRequestStatus{}, err
}
