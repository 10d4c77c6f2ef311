package serviceaccounttoken

import (
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/util/keyutil"

	"svc.dev/svc/internal/tokenkey"
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
	key, err := tokenkey.JSONWebKey(private)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &signer{s}, nil
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
