package jointoken

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// stored returns the secret as the API server stores it.
func stored(t Token) *corev1.Secret {
	s := t.Secret()
	s.Data = map[string][]byte{}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
	return s
}

func TestASecretHoldsAllOfAToken(t *testing.T) {
	for rule, token := range map[string]Token{
		"minimal": {ID: "abcdef", Key: "0123456789abcdef"},
		"whole": {
			ID: "abcdef", Key: "0123456789abcdef", Description: "for racks", Expires: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
			Usages: Usages(), Groups: []string{DefaultGroup, "system:bootstrappers:racks"},
		},
	} {
		t.Run(rule, func(t *testing.T) {
			got, err := FromSecret(stored(token))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(token, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestASecretWithoutAValidTokenIsAnError(t *testing.T) {
	for rule, change := range map[string]func(*corev1.Secret){
		"another name":             func(s *corev1.Secret) { s.Name = "abcdef" },
		"another ID":               func(s *corev1.Secret) { s.Data["token-id"] = []byte("abcdee") },
		"a short key":              func(s *corev1.Secret) { s.Data["token-secret"] = []byte("0") },
		"an unreadable expiration": func(s *corev1.Secret) { s.Data["expiration"] = []byte("soon") },
	} {
		t.Run(rule, func(t *testing.T) {
			s := stored(Token{ID: "abcdef", Key: "0123456789abcdef"})
			change(s)
			if got, err := FromSecret(s); err == nil {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestSecretName(t *testing.T) {
	for argument, want := range map[string]string{
		"abcdef": "bootstrap-token-abcdef", "abcdef.0123456789abcdef": "bootstrap-token-abcdef",
		"": "", "abcde": "", "ABCDEF": "", "abcdef.": "", "abcdef.0": "", "abcdef/x": "", "abcdef\n": "",
	} {
		if got, err := SecretName(argument); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", argument, got, err, want)
		}
	}
}

func TestGeneratedTokensDiffer(t *testing.T) {
	id, key, err := Generate()
	other, otherKey, otherErr := Generate()
	if err != nil || otherErr != nil || id == other || key == otherKey {
		t.Errorf("got %s.%s, %v and %s.%s, %v", id, key, err, other, otherKey, otherErr)
	}
}
