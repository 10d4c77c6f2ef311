package tokenkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"strings"
	"testing"
)

func TestAKeyAndItsPublicHalfHaveTheSameIDAndAlgorithm(t *testing.T) {
	for want, key := range map[string]crypto.Signer{
		"RS256": must(rsa.GenerateKey(rand.Reader, 2048)),
		"ES256": must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)),
		"ES384": must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)),
		"ES512": must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader)),
	} {
		private, err := JSONWebKey(key)
		if err != nil {
			t.Fatal(err)
		}
		public, err := JSONWebKey(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		if private.KeyID == "" || private.KeyID != public.KeyID || private.Algorithm != want || public.Algorithm != want {
			t.Errorf("%s: the private key has %s and %s, the public one %s and %s", want, private.KeyID, private.Algorithm, public.KeyID, public.Algorithm)
		}
	}
}

func TestOtherKeysCannotSign(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for want, key := range map[string]any{
		"use RSA or ECDSA":               edwards,
		"on curve P-256, P-384 or P-521": must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader)),
		"a key of type string":           "secret",
	} {
		if _, err := JSONWebKey(key); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a key of type %T: %v, want %q", key, err, want)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
