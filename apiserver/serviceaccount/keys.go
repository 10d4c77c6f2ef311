package serviceaccount

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/util/keyutil"

	"svc.dev/svc/internal/tokenkey"
)

// Keys are the keys that verify tokens and the one that signs them.
type Keys struct {
	verifying []jose.JSONWebKey
	// signing is nil if no tokens are issued.
	signing *jose.JSONWebKey
}

// LoadKeys reads PEM files. The files of verifying hold RSA or ECDSA keys, private
// or public, or certificates, any number each; the file of signing, which may be
// empty, holds one private key. The server must accept the tokens that it signs,
// so verifying must have the public half of that key. An error names the file and
// its flag.
func LoadKeys(verifying []string, signing string) (*Keys, error) {
	k := &Keys{}
	for _, file := range verifying {
		found, err := readKeys(file)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file: %w; name a PEM file of RSA or ECDSA keys", err)
		}
		for _, known := range found {
			if !slices.ContainsFunc(k.verifying, func(other jose.JSONWebKey) bool { return other.KeyID == known.KeyID }) {
				k.verifying = append(k.verifying, known)
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
	key, err := tokenkey.JSONWebKey(private)
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
		key, err := tokenkey.JSONWebKey(public)
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

// publicKey returns the public key of a block, or nil for a block of another type,
// such as EC PARAMETERS.
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

// CanVerifyTokens reports whether a PEM file holds keys of an algorithm that
// tokens can be signed with.
func CanVerifyTokens(file string) bool {
	_, err := readKeys(file)
	return err == nil
}

// Signing reports whether there is a key to sign with.
func (k *Keys) Signing() bool { return k.signing != nil }

// Empty reports whether there is no key at all.
func (k *Keys) Empty() bool { return len(k.verifying) == 0 }

// candidates returns the keys that may have signed a token with this header: all
// of them if it has no key ID. A key is used only with its own algorithm, so that
// a token cannot choose how it is verified.
func (k *Keys) candidates(id, algorithm string) []jose.JSONWebKey {
	var keys []jose.JSONWebKey
	for _, key := range k.verifying {
		if key.Algorithm == algorithm && (id == "" || id == key.KeyID) {
			keys = append(keys, key)
		}
	}
	return keys
}

// signatureAlgorithms are the algorithms that a token can be signed with.
func signatureAlgorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}
}
