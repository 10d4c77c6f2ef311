package serviceaccounttoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/util/keyutil"
)

// signer signs the tokens of secrets. They do not expire: the API server accepts
// one as long as its secret and its account exist.
type signer struct{ jose.Signer }

// readSigner reads a PEM file with a private key.
func readSigner(file string) (*signer, error) {
	private, err := keyutil.PrivateKeyFromFile(file)
	if err != nil {
		return nil, err
	}
	key, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: a key of type %T cannot sign tokens", file, private)
	}
	algorithm, err := algorithmOf(key.Public())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	// The API server finds the key by this ID, a hash of the public half.
	hash := sha256.Sum256(der)
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{
		Key: key, KeyID: base64.RawURLEncoding.EncodeToString(hash[:]), Algorithm: string(algorithm), Use: "sig",
	}}, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &signer{s}, nil
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
	}
	return "", fmt.Errorf("a key of type %T cannot sign tokens; use RSA, or ECDSA on curve P-256, P-384 or P-521", public)
}

// claims are those that the API server requires of a secret's token.
type claims struct {
	jwt.Claims

	Namespace   string `json:"kubernetes.io/serviceaccount/namespace"`
	Secret      string `json:"kubernetes.io/serviceaccount/secret.name"`
	AccountName string `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// sign returns the token of a secret.
func (s *signer) sign(secret *corev1.Secret, account *corev1.ServiceAccount) (string, error) {
	token, err := jwt.Signed(s).Claims(claims{
		Claims:    jwt.Claims{Issuer: "kubernetes/serviceaccount", Subject: serviceaccount.MakeUsername(account.Namespace, account.Name)},
		Namespace: account.Namespace, Secret: secret.Name, AccountName: account.Name, AccountUID: string(account.UID),
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign the token of service account %s/%s: %w", account.Namespace, account.Name, err)
	}
	return token, nil
}
