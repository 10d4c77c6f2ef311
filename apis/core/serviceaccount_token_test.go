package core

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// readOnly are objects by name.
type readOnly struct {
	resource.Objects
	kind    schema.GroupResource
	objects map[string]runtime.Object
}

func (r readOnly) Get(_ context.Context, namespace, name string) (runtime.Object, error) {
	if obj := r.objects[name]; obj != nil && obj.(metav1.Object).GetNamespace() == namespace {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(r.kind, name)
}

// told writes what it is asked for into the token.
type told struct{}

func (told) Issue(_ context.Context, r resource.TokenRequest) (*resource.Token, error) {
	text := fmt.Sprintf("%s/%s %s %v %s", r.Namespace, r.Account.Name, r.Account.UID, r.Audiences, r.Lifetime)
	for _, bound := range []struct {
		kind string
		to   *resource.Referent
	}{{"pod", r.Pod}, {"secret", r.Secret}, {"node", r.Node}} {
		if bound.to != nil {
			text += fmt.Sprintf(" %s=%s(%s)", bound.kind, bound.to.Name, bound.to.UID)
		}
	}
	return &resource.Token{Token: text, Lifetime: r.Lifetime, Expires: time.Unix(0, 0).Add(r.Lifetime)}, nil
}

// requestToken posts a token request.
func requestToken(t *testing.T, env *resource.Env, req resource.ActionRequest) (runtime.Object, error) {
	t.Helper()
	token.Default(req.Input)
	if err := token.Prepare(t.Context(), env, req); err != nil {
		return nil, err
	}
	return token.Run(t.Context(), env, req)
}

func TestTokenRequest(t *testing.T) {
	meta := func(name, uid string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)}
	}
	pod := func(name, account, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: meta(name, "pod-1"), Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: node}}
	}
	store := map[string]map[string]runtime.Object{
		"serviceaccounts": {"till": &corev1.ServiceAccount{ObjectMeta: meta("till", "sa-1")}},
		"pods":            {"web": pod("web", "till", "n1"), "lost": pod("lost", "till", "n2"), "new": pod("new", "till", ""), "other": pod("other", "default", "n1")},
		"secrets":         {"key": &corev1.Secret{ObjectMeta: meta("key", "secret-1")}},
		"nodes":           {"n1": &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-1"}}},
	}
	env := &resource.Env{
		Clock:      clock.RealClock{},
		Tokens:     told{},
		Audiences:  []string{"api"},
		NodeTokens: true,
		Objects:    func(gr schema.GroupResource) resource.Objects { return readOnly{kind: gr, objects: store[gr.Resource]} },
	}
	bound := func(kind, name, uid string) authenticationv1.TokenRequestSpec {
		return authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name, UID: types.UID(uid)}}
	}
	seconds := func(s int64) authenticationv1.TokenRequestSpec {
		return authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(s)}
	}
	const till = "shop/till sa-1 [api] "
	for _, test := range []struct {
		rule, account, uid string
		spec               authenticationv1.TokenRequestSpec
		want               string // the token, or the error
	}{
		{"lives for an hour", "till", "", authenticationv1.TokenRequestSpec{}, till + "1h0m0s"},
		{"is for the audiences", "till", "sa-1", authenticationv1.TokenRequestSpec{Audiences: []string{"a", "b"}}, "shop/till sa-1 [a b] 1h0m0s"},
		{"lives for ten minutes at least", "till", "", seconds(600), till + "10m0s"},
		{"lives for 2^32 seconds at most", "till", "", seconds(1 << 32), till + "1193046h28m16s"},
		{"not for less", "till", "", seconds(599), `TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes`},
		{"not for more", "till", "", seconds(1<<32 + 1), `TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds`},
		{"is bound to a pod, and tells its node", "till", "", bound("Pod", "web", "pod-1"), till + "1h0m0s pod=web(pod-1) node=n1(node-1)"},
		{"tells the name of a node that is not there", "till", "", bound("Pod", "lost", ""), till + "1h0m0s pod=lost(pod-1) node=n2()"},
		{"is bound to a pod without node", "till", "", bound("Pod", "new", ""), till + "1h0m0s pod=new(pod-1)"},
		{"is bound to a secret", "till", "", bound("Secret", "key", "secret-1"), till + "1h0m0s secret=key(secret-1)"},
		{"is bound to a node", "till", "", bound("Node", "n1", "node-1"), till + "1h0m0s node=n1(node-1)"},
		{"not to another account's pod", "till", "", bound("Pod", "other", ""), `cannot bind token for serviceaccount "till" to pod running with different serviceaccount name.`},
		{"not to a pod of another UID", "till", "", bound("Pod", "web", "pod-0"), `Operation cannot be fulfilled on Pod "web": the UID in the bound object reference (pod-0) does not match the UID in record. The object might have been deleted and then recreated`},
		{"not to a pod that is not there", "till", "", bound("Pod", "gone", ""), `pods "gone" not found`},
		{"not to another kind", "till", "", bound("ConfigMap", "x", ""), `cannot bind token to object of type /v1, Kind=ConfigMap`},
		{"not for an account that does not exist", "absent", "", authenticationv1.TokenRequestSpec{}, `serviceaccounts "absent" not found`},
		{"not for an account of another UID", "till", "sa-0", authenticationv1.TokenRequestSpec{}, `Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "till": the UID in the token request (sa-0) does not match the UID of the service account (sa-1)`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			posted := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: types.UID(test.uid)}, Spec: test.spec}
			answer, err := requestToken(t, env, resource.ActionRequest{Namespace: "shop", Name: test.account, Input: posted})
			if err != nil {
				if err.Error() != test.want {
					t.Errorf("got  %s\nwant %s", err, test.want)
				}
				return
			}
			got := answer.(*authenticationv1.TokenRequest)
			if got.Status.Token != test.want {
				t.Errorf("got  %s\nwant %s", got.Status.Token, test.want)
			}
			if got.UID != "sa-1" || got.Status.ExpirationTimestamp.Unix() != *got.Spec.ExpirationSeconds {
				t.Errorf("the answer is %+v", got)
			}
		})
	}
}

func TestATokenRequestWithoutSigningKeyNamesTheFlag(t *testing.T) {
	_, err := requestToken(t, &resource.Env{}, resource.ActionRequest{Input: &authenticationv1.TokenRequest{}})
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "--service-account-signing-key-file") {
		t.Errorf("got %v", err)
	}
}

func TestATokenIsNotBoundToANodeWithoutItsGate(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till"}}
	env := &resource.Env{Clock: clock.RealClock{}, Tokens: told{}, Objects: func(gr schema.GroupResource) resource.Objects {
		return readOnly{kind: gr, objects: map[string]runtime.Object{account.Name: account}}
	}}
	posted := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1"}}}
	_, err := requestToken(t, env, resource.ActionRequest{Namespace: account.Namespace, Name: account.Name, Input: posted})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "ServiceAccountTokenNodeBinding") {
		t.Errorf("got %v", err)
	}
}
