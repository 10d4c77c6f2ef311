// Package tokenkey owns the rules for the keys of service account tokens, which the API
// server and the controller that signs the tokens of secrets share: which keys may sign, by
// which algorithm, and the ID that names a key in a token.
package tokenkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// JSONWebKey returns a private or public key as a JSON Web Key, with the ID that
// Kubernetes gives it: a hash of the public half. The error says which keys can sign.
func JSONWebKey(key any) (jose.JSONWebKey, error) {
	public := key
	if private, ok := key.(crypto.Signer); ok {
		public = private.Public()
	}
	algorithm, err := algorithmOf(public)
	if err != nil {
		return jose.JSONWebKey{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return jose.JSONWebKey{}, err
	}
	hash := sha256.Sum256(der)
	return jose.JSONWebKey{
		Key: key, KeyID: base64.RawURLEncoding.EncodeToString(hash[:]), Algorithm: string(algorithm), Use: "sig",
	}, nil
}

func algorithmOf(public crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch key := public.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
		return "", errors.New("an ECDSA key must be on curve P-256, P-384 or P-521")
	}
	return "", fmt.Errorf("a key of type %T cannot sign tokens; use RSA or ECDSA", public)
}
