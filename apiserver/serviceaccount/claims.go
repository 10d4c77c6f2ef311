package serviceaccount

import (
	"github.com/go-jose/go-jose/v4/jwt"

	"svc.dev/svc/apis/resource"
)

// tokenClaims are the claims of a token. Bound is set in tokens of TokenRequests,
// the fields after it in the older tokens of secrets.
type tokenClaims struct {
	jwt.Claims
	Bound *boundClaims `json:"kubernetes.io,omitempty"`

	SecretNamespace string `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
	SecretName      string `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`
	AccountName     string `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	AccountUID      string `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
}

// boundClaims name the account of a token and the object that it is bound to.
type boundClaims struct {
	Namespace string             `json:"namespace"`
	Account   *resource.Referent `json:"serviceaccount"`
	Pod       *resource.Referent `json:"pod,omitempty"`
	Secret    *resource.Referent `json:"secret,omitempty"`
	Node      *resource.Referent `json:"node,omitempty"`
	// WarnAfter is when clients should have renewed a token whose lifetime was
	// extended.
	WarnAfter *jwt.NumericDate `json:"warnafter,omitempty"`
}

// legacyIssuer is the issuer of tokens of secrets.
const legacyIssuer = "kubernetes/serviceaccount"
