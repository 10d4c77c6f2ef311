package serviceaccount

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/util/keyutil"
)

// Keys are those by which tokens are checked, and the one that signs them.
type Keys struct {
	checking []jose.JSONWebKey
	// signing is nil where no tokens are issued.
	signing *jose.JSONWebKey
}

// LoadKeys reads PEM files: those of checking hold RSA or ECDSA keys, private
// or public, or certificates, several each; that of signing, which may be
// empty, one private key. A token that this server signs must pass its own
// check, so checking must have the public half of that key. An error names the
// file and its flag.
func LoadKeys(checking []string, signing string) (*Keys, error) {
	k := &Keys{}
	for _, file := range checking {
		found, err := readKeys(file)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file: %w; name a PEM file of RSA or ECDSA keys", err)
		}
		for _, known := range found {
			if !slices.ContainsFunc(k.checking, func(other jose.JSONWebKey) bool { return other.KeyID == known.KeyID }) {
				k.checking = append(k.checking, known)
			}
		}
	}
	if signing == "" {
		return k, nil
	}
	private, err := keyutil.PrivateKeyFromFile(signing)
	if err != nil {
		return nil, fmt.Errorf("--service-account-signing-key-file: %w; name a PEM file of an RSA or ECDSA private key", err)
	}
	key, err := webKey(private)
	if err != nil {
		return nil, fmt.Errorf("--service-account-signing-key-file: %s: %w", signing, err)
	}
	if len(k.candidates(key.KeyID, key.Algorithm)) == 0 {
		return nil, fmt.Errorf("--service-account-key-file: no file has the public key of --service-account-signing-key-file %s, "+
			"so the server would refuse its own tokens; name that file here, too", signing)
	}
	k.signing = &key
	return k, nil
}

// readKeys reads the public keys of a PEM file, and the public halves of its
// private keys and certificates.
func readKeys(file string) ([]jose.JSONWebKey, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return keys, nil
}

func parseKeys(content []byte) ([]jose.JSONWebKey, error) {
	var keys []jose.JSONWebKey
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		public, err := publicKey(block)
		if err != nil {
			return nil, err
		}
		if public == nil {
			continue
		}
		key, err := webKey(public)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("no key in PEM format")
	}
	return keys, nil
}

// publicKey is the key of a block; a block of another sort (EC PARAMETERS,
// say) has none.
func publicKey(block *pem.Block) (crypto.PublicKey, error) {
	var key any
	var err error
	switch block.Type {
	case keyutil.PublicKeyBlockType:
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return certificate.PublicKey, nil
	case keyutil.PrivateKeyBlockType:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case keyutil.ECPrivateKeyBlockType:
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case keyutil.RSAPrivateKeyBlockType:
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if private, ok := key.(crypto.Signer); ok {
		return private.Public(), nil
	}
	return nil, fmt.Errorf("a key of type %T cannot sign tokens; use RSA or ECDSA", key)
}

// CanCheckTokens reports whether a PEM file holds keys of a sort that signs
// tokens.
func CanCheckTokens(file string) bool {
	_, err := readKeys(file)
	return err == nil
}

// Signing reports whether there is a key to sign with.
func (k *Keys) Signing() bool { return k.signing != nil }

// Empty reports whether there is no key at all.
func (k *Keys) Empty() bool { return len(k.checking) == 0 }

// candidates are the keys that may have signed a token with this header. A
// token without key ID may be of any; but a key is used with no other
// algorithm than its own, so that a token cannot choose how it is checked.
func (k *Keys) candidates(id, algorithm string) []jose.JSONWebKey {
	var keys []jose.JSONWebKey
	for _, key := range k.checking {
		if key.Algorithm == algorithm && (id == "" || id == key.KeyID) {
			keys = append(keys, key)
		}
	}
	return keys
}

// signatureAlgorithms are all that a token may be signed by.
func signatureAlgorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}
}

// webKey describes a private or public key, under the ID that Kubernetes gives
// it: a hash of the public half.
func webKey(key any) (jose.JSONWebKey, error) {
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
