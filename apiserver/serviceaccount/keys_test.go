package serviceaccount

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"svc.dev/svc/internal/tokenkey"
)

func TestKeyFilesMayHoldKeysOfSeveralFormats(t *testing.T) {
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate := must(x509.CreateCertificate(rand.Reader, template, template, p256Key().Public(), p256Key()))
	ec, private := p256Key().(*ecdsa.PrivateKey), rsaKey().(*rsa.PrivateKey)
	ecID, rsaID := must(tokenkey.JSONWebKey(ec.Public())).KeyID, must(tokenkey.JSONWebKey(private.Public())).KeyID
	for _, test := range []struct {
		form    string
		content []byte
		want    []string
	}{
		{"certificate", block("CERTIFICATE", certificate), []string{ecID}},
		{"public key", publicPEM(ec), []string{ecID}},
		{"PKCS#8 private key", privatePEM(ec), []string{ecID}},
		{"EC private key after its parameters", slices.Concat(block("EC PARAMETERS", []byte{6, 0}), block("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(ec)))), []string{ecID}},
		{"PKCS#1 private key", block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(private)), []string{rsaID}},
		{"PKCS#1 public key", block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&private.PublicKey)), []string{rsaID}},
		{"several, one twice", slices.Concat(publicPEM(ec), []byte("text\n"), privatePEM(private), privatePEM(ec)), []string{ecID, rsaID}},
	} {
		t.Run(test.form, func(t *testing.T) {
			keys, err := LoadKeys([]string{file(t, test.content)}, "")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, key := range keys.verifying {
				got = append(got, key.KeyID)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestOnlyRSAAndECDSAKeysVerifyTokens(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if CanVerifyTokens(file(t, privatePEM(edwards))) {
		t.Error("an Ed25519 key is accepted")
	}
	if !CanVerifyTokens(file(t, privatePEM(p384Key()))) {
		t.Error("an ECDSA key is refused")
	}
}

func TestKeysAreFoundByIDOrTriedIfThereIsNone(t *testing.T) {
	w := newFixture(t, p256Key())
	var err error
	if w.accept.Keys, err = LoadKeys([]string{file(t, publicPEM(otherKey()), privatePEM(rsaKey())), file(t, privatePEM(p256Key()))}, ""); err != nil {
		t.Fatal(err)
	}
	good := w.issue(t, request())
	for rule, token := range map[string]string{"by ID": good, "without": forge(t, good, jose.ES256, p256Key(), "", nil)} {
		if got := w.authenticate(token); !strings.HasPrefix(got, till) {
			t.Errorf("%s: %s", rule, got)
		}
	}
	if w.accept.Keys.Signing() {
		t.Error("there is no key to sign with")
	}
}

func TestErrorsOfKeyFilesNameFlagAndFile(t *testing.T) {
	good, text := file(t, publicPEM(p256Key())), file(t, []byte("no PEM"))
	none := filepath.Join(t.TempDir(), "none")
	p224 := must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	for _, test := range []struct {
		rule, verifying, signing string
		want                     []string
	}{
		{"missing key", none, "", []string{"--service-account-key-file", none}},
		{"key file without keys", text, "", []string{"--service-account-key-file", text, "RSA or ECDSA"}},
		{"damaged key", file(t, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("damaged")})), "", []string{"--service-account-key-file"}},
		{"weak curve", file(t, publicPEM(p224)), "", []string{"--service-account-key-file", "P-256"}},
		{"missing signing key", good, none, []string{"--service-account-signing-key-file", none}},
		{"signing key without PEM", good, text, []string{"--service-account-signing-key-file", text}},
		{"public signing key", good, good, []string{"--service-account-signing-key-file", good, "private key"}},
		{"signing key that is not among the verifying keys", good, file(t, privatePEM(otherKey())), []string{"--service-account-key-file", "--service-account-signing-key-file", "refuse its own tokens"}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			_, err := LoadKeys([]string{test.verifying}, test.signing)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%q does not mention %q in one line", err, want)
				}
			}
		})
	}
}
