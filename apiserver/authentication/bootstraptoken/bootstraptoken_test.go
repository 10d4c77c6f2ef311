package bootstraptoken

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const good = "abcdef.0123456789abcdef"

// secret returns the secret of the token good.
func secret() *corev1.Secret {
	return &corev1.Secret{
		Type: "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
		},
	}
}

// set returns a change that sets a key.
func set(key, value string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
}

func TestTheUserOfABootstrapToken(t *testing.T) {
	const rejected = ""
	for _, test := range []struct {
		rule, token string
		change      func(*corev1.Secret)
		want        string
	}{
		{"a token has a user and a group", good, nil, "system:bootstrap:abcdef [system:bootstrappers]"},
		{"further groups are added", good, set("auth-extra-groups", "system:bootstrappers:worker,system:bootstrappers:a"),
			"system:bootstrap:abcdef [system:bootstrappers system:bootstrappers:a system:bootstrappers:worker]"},
		{"another group is rejected", good, set("auth-extra-groups", "system:bootstrappers:a,system:masters"), rejected},
		{"another key is rejected", "abcdef.0123456789abcdee", nil, rejected},
		{"another ID is rejected", "abcdee.0123456789abcdef", nil, rejected},
		{"another form is rejected", "abcdef.0123456789abcdef ", nil, rejected},
		{"capitals are another form", "ABCDEF.0123456789abcdef", nil, rejected},
		{"a token is valid before its expiration", good, set("expiration", "2026-01-01T12:00:01Z"), "system:bootstrap:abcdef [system:bootstrappers]"},
		{"a token expires", good, set("expiration", "2026-01-01T12:00:00Z"), rejected},
		{"an expiration that cannot be read has passed", good, set("expiration", "tomorrow"), rejected},
		{"a token for signing only is rejected", good, set("usage-bootstrap-authentication", "false"), rejected},
		{"only the word true allows the usage", good, set("usage-bootstrap-authentication", "True"), rejected},
		{"a secret of another token is rejected", good, set("token-id", "abcdee"), rejected},
		{"a secret of another type is rejected", good, func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, rejected},
		{"a secret without data is rejected", good, func(s *corev1.Secret) { s.Data = nil }, rejected},
		{"a secret that is being deleted is rejected", good, func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: now} }, rejected},
	} {
		t.Run(test.rule, func(t *testing.T) {
			s := secret()
			if test.change != nil {
				test.change(s)
			}
			a := Authenticator{Clock: clocktesting.NewFakePassiveClock(now), Secret: func(_ context.Context, namespace, name string) (*corev1.Secret, error) {
				if namespace != "kube-system" || name != "bootstrap-token-abcdef" {
					return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
				}
				return s, nil
			}}
			resp, ok, err := a.AuthenticateToken(t.Context(), test.token)
			if err != nil || ok != (test.want != rejected) {
				t.Fatalf("got %v, %v, %v", resp, ok, err)
			}
			if ok && fmt.Sprint(resp.User.GetName(), " ", resp.User.GetGroups()) != test.want {
				t.Errorf("got %+v, want %s", resp.User, test.want)
			}
		})
	}
}

func TestAnUnreadableSecretIsAnErrorNotARejection(t *testing.T) {
	unavailable := errors.New("etcd is not available")
	a := Authenticator{Clock: clocktesting.NewFakePassiveClock(now), Secret: func(context.Context, string, string) (*corev1.Secret, error) { return nil, unavailable }}
	if _, ok, err := a.AuthenticateToken(t.Context(), good); ok || !errors.Is(err, unavailable) {
		t.Errorf("got %v, %v", ok, err)
	}
}
