package serviceaccount

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/resource"
)

func TestUsesOfTokensOfSecretsAreTracked(t *testing.T) {
	date := func(days int) string { return start.UTC().AddDate(0, 0, days).Format(dateFormat) }
	for _, test := range []struct {
		rule, label, invalid string
		generated            bool
		want                 string
	}{
		{"the first use", "", "", false, "[legacy legacy, manually created] labelled " + date(0)},
		{"one of an earlier day", date(-1), "", false, "[legacy legacy, manually created] labelled " + date(0)},
		{"one of the same day", date(0), "", false, "[legacy legacy, manually created] labelled "},
		{"one by a server whose clock is behind", date(1), "", false, "[legacy legacy, manually created] labelled "},
		{"one of a token that was generated", "", "", true, "[legacy legacy, generated with the account] labelled " + date(0)},
		{"one of an invalid token", "", date(-3), true, "[legacy legacy, marked invalid] labelled " + date(0)},
	} {
		t.Run(test.rule, func(t *testing.T) {
			w := newFixture(t, rsaKey())
			token := tokenOfSecret()
			labels := map[string]string{lastUsedLabel: test.label, invalidSinceLabel: test.invalid}
			w.add("secrets", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till-token", Labels: labels}, Data: map[string][]byte{"token": []byte(token)}})
			if test.generated {
				w.objects["serviceaccounts/shop/till"].(*corev1.ServiceAccount).Secrets = []corev1.ObjectReference{{Name: "till-token"}}
			}
			var uses []Use
			labelled := ""
			w.accept.Count = func(use Use) { uses = append(uses, use) }
			w.accept.Label = func(_ context.Context, _ *corev1.Secret, key, value string) error {
				if key == lastUsedLabel {
					labelled = value
				}
				return nil
			}
			synctest.Test(t, func(*testing.T) {
				w.authenticate(token)
				synctest.Wait()
			})
			if got := fmt.Sprintf("%v labelled %s", uses, labelled); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestUsesOfMountedTokensAreCounted(t *testing.T) {
	w := newFixture(t, p256Key())
	var uses []Use
	w.accept.Count = func(use Use) { uses = append(uses, use) }
	mounted := w.issue(t, request(toPod, func(r *resource.TokenRequest) { r.Lifetime = mountedLifetime }))
	w.authenticate(mounted)
	w.clock.Step(2 * mountedLifetime)
	w.authenticate(mounted)
	if want := []Use{Valid, Stale}; !slices.Equal(uses, want) {
		t.Errorf("got %v, want %v", uses, want)
	}
}
