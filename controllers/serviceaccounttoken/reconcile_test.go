package serviceaccounttoken

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// secret returns a secret of the account "robot" with a UID, which may be empty,
// and with data.
func secret(uid string, data ...string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
		Type:       corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{},
	}
	if uid != "" {
		s.Annotations[corev1.ServiceAccountUIDKey] = uid
	}
	for _, entry := range data {
		key, value, _ := strings.Cut(entry, "=")
		s.Data[key] = []byte(value)
	}
	return s
}

func TestReconcile(t *testing.T) {
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "robot", UID: "1"}}
	opaque := secret("")
	opaque.Type = corev1.SecretTypeOpaque
	for _, test := range []struct {
		rule           string
		cached, stored []client.Object // stored are in the API server only
		want           string          // "" if the secret is deleted
	}{
		{"a new secret gets UID, token, namespace and authority", []client.Object{robot, secret("")}, nil, "1 ca.crt=PEM namespace=n token=signed"},
		{"a token that the secret has stays", []client.Object{robot, secret("1", "token=old", "namespace=n")}, nil, "1 ca.crt=PEM namespace=n token=old"},
		{"a changed authority is corrected", []client.Object{robot, secret("1", "token=old", "namespace=n", "ca.crt=forged")}, nil, "1 ca.crt=PEM namespace=n token=old"},
		{"keys of users stay", []client.Object{robot, secret("", "mine=x")}, nil, "1 ca.crt=PEM mine=x namespace=n token=signed"},
		{"a secret without an account is deleted", []client.Object{secret("")}, nil, ""},
		{"so is one of an earlier account of the name", []client.Object{robot, secret("0", "token=old")}, nil, ""},
		{"a secret whose account the cache does not have yet is filled", []client.Object{secret("")}, []client.Object{robot}, "1 ca.crt=PEM namespace=n token=signed"},
		{"other secrets are not written", []client.Object{opaque}, nil, ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(test.cached...).Build()
			live := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(test.stored...).Build()
			r := &reconciler{client: c, live: live, rootCA: []byte("PEM"), sign: func(*corev1.Secret, *corev1.ServiceAccount) (string, error) { return "signed", nil }}
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "n", Name: "s"}}); err != nil {
				t.Fatal(err)
			}
			s := &corev1.Secret{}
			err := c.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "s"}, s)
			switch {
			case s.Type == corev1.SecretTypeOpaque:
				if len(s.Data) > 0 {
					t.Errorf("the secret has %v", s.Data)
				}
			case test.want == "" && !apierrors.IsNotFound(err):
				t.Errorf("the secret is not deleted: %v", err)
			case test.want != "":
				if got := s.Annotations[corev1.ServiceAccountUIDKey] + listed(s); err != nil || got != test.want {
					t.Errorf("got %q and error %v, want %q", got, err, test.want)
				}
			}
		})
	}
}

// listed returns the data of a secret in the order of its keys.
func listed(s *corev1.Secret) string {
	text := ""
	for _, key := range []string{"ca.crt", "mine", "namespace", "token"} {
		if value, ok := s.Data[key]; ok {
			text += " " + key + "=" + string(value)
		}
	}
	return text
}

func TestTokensNameTheirSecretAndAccount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, key, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := readSigner(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.sign(secret(""), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "robot", UID: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	var got claims
	if err := token.UnsafeClaimsWithoutVerification(&got); err != nil {
		t.Fatal(err)
	}
	want := claims{
		Claims:    jwt.Claims{Issuer: "kubernetes/serviceaccount", Subject: "system:serviceaccount:n:robot"},
		Namespace: "n", Secret: "s", AccountName: "robot", AccountUID: "1",
	}
	if got.Issuer != want.Issuer || got.Subject != want.Subject || got.Expiry != nil || got.Namespace != want.Namespace ||
		got.Secret != want.Secret || got.AccountName != want.AccountName || got.AccountUID != want.AccountUID {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if token.Headers[0].KeyID == "" {
		t.Error("the token names no key")
	}
}

func TestAKeyFileMustHaveAPrivateKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, file + "-missing"} {
		o := &options{keyFile: name, concurrent: 1}
		errs := o.validate()
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "--service-account-private-key-file: ") || !strings.Contains(errs[0].Error(), name) {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
