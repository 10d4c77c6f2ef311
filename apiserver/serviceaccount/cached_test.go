package serviceaccount

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// tokenOfSecret returns the token of the account till in its secret till-token.
func tokenOfSecret() string {
	return must(jwt.Signed(must(jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: rsaKey()}, nil))).Claims(map[string]any{
		"iss": legacyIssuer, "sub": "system:serviceaccount:shop:till",
		"kubernetes.io/serviceaccount/namespace": "shop", "kubernetes.io/serviceaccount/secret.name": "till-token",
		"kubernetes.io/serviceaccount/service-account.name": "till", "kubernetes.io/serviceaccount/service-account.uid": "sa-1",
	}).Serialize())
}

// TestATokenIsAcceptedByTheWatchCacheAndRejectedByTheNewestState has a watch cache that
// differs from etcd, or an etcd that is not available.
func TestATokenIsAcceptedByTheWatchCacheAndRejectedByTheNewestState(t *testing.T) {
	account := func(uid types.UID) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till", UID: uid}}
	}
	pod := func(uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid}}
	}
	secret := func(token string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till-token"}, Data: map[string][]byte{"token": []byte(token)}}
	}
	marked := func(token string) *corev1.Secret {
		s := secret(token)
		s.Labels = map[string]string{invalidSinceLabel: "2024-05-01"}
		return s
	}
	ofSecret := tokenOfSecret()
	good := []metav1.Object{account("sa-1"), pod("pod-1"), secret(ofSecret)}
	for _, test := range []struct {
		rule           string
		cached, newest []metav1.Object // the newest is nil if etcd is not available
		ofPod, legacy  string          // what the token of a pod and that of a secret give
	}{
		{"without etcd", good, nil, till, till},
		{"without etcd and watch caches", nil, nil, "refused: service account token: etcd does not answer", "refused: service account token: etcd does not answer"},
		{"objects that have just been created", []metav1.Object{}, good, till, till},
		{"objects that have just been created again, and the secret filled", []metav1.Object{account("sa-0"), pod("pod-0"), secret("")}, good, till, till},
		{"objects that have been deleted", []metav1.Object{}, []metav1.Object{},
			`refused: service account token: serviceaccounts "till" not found`, `refused: service account token: secrets "till-token" not found`},
		{"a pod that was created again without etcd", []metav1.Object{account("sa-1"), pod("pod-2"), secret("")}, nil,
			"refused: service account token: etcd does not answer", "refused: service account token: etcd does not answer"},
		{"a secret that was marked as invalid and is no longer", []metav1.Object{account("sa-1"), pod("pod-1"), marked(ofSecret)}, good, till, till},
		{"a secret that has just been marked", good, []metav1.Object{account("sa-1"), pod("pod-1"), marked(ofSecret)}, till, till},
		{"a marked secret without etcd", []metav1.Object{account("sa-1"), pod("pod-1"), marked(ofSecret)}, nil, till, "refused: service account token: etcd does not answer"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			w := newFixture(t, rsaKey())
			of := func(objects []metav1.Object) Getter {
				kinds := map[string]string{"serviceaccounts": "till", "pods": "web", "secrets": "till-token"}
				return func(_ context.Context, gr schema.GroupResource, _, name string) (runtime.Object, error) {
					if objects == nil {
						return nil, apierrors.NewServiceUnavailable("etcd does not answer")
					}
					for _, obj := range objects {
						if obj.GetName() == name && kinds[gr.Resource] == name {
							return obj.(runtime.Object), nil
						}
					}
					return nil, apierrors.NewNotFound(gr, name)
				}
			}
			token := w.issue(t, request(toPod))
			w.accept.Cached, w.accept.Get = of(test.cached), of(test.newest)
			if got := w.authenticate(token); !strings.HasPrefix(got, test.ofPod) {
				t.Errorf("the token of a pod: %s, want %s", got, test.ofPod)
			}
			if got := w.authenticate(ofSecret); !strings.HasPrefix(got, test.legacy) {
				t.Errorf("the token of a secret: %s, want %s", got, test.legacy)
			}
		})
	}
}

func TestAnEtcdThatDoesNotAnswerIsAskedOnce(t *testing.T) {
	w := newFixture(t, p256Key())
	token, reads := w.issue(t, request()), 0
	w.accept.Cached = func(context.Context, schema.GroupResource, string, string) (runtime.Object, error) {
		reads++
		return nil, apierrors.NewServiceUnavailable("etcd does not answer")
	}
	w.accept.Get = w.accept.Cached
	if got := w.authenticate(token); !strings.HasPrefix(got, "refused") || reads != 1 {
		t.Errorf("%s after %d reads", got, reads)
	}
}

func TestATokenDoesNotWaitForItsLabel(t *testing.T) {
	w := newFixture(t, rsaKey())
	token := tokenOfSecret()
	w.add("secrets", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till-token"}, Data: map[string][]byte{"token": []byte(token)}})
	synctest.Test(t, func(t *testing.T) {
		ended, labels := make(chan error), 0
		w.accept.Label = func(ctx context.Context, _ *corev1.Secret, _, _ string) error {
			labels++
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		}
		a := NewAuthenticator(w.accept)
		for range 3 {
			if _, ok, err := a.AuthenticateToken(t.Context(), token); !ok || err != nil {
				t.Errorf("%t, %v", ok, err)
			}
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || labels != 1 {
			t.Errorf("%v after %d labels", err, labels)
		}
	})
}
