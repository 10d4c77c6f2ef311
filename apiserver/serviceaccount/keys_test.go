package serviceaccount

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"

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
