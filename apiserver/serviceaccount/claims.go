package serviceaccount

import (
	"github.com/go-jose/go-jose/v4/jwt"

	"svc.dev/svc/apis/resource"
)

// claims are what a token says. Bound is set in the tokens of TokenRequests;
// the fields after it are of those that a secret holds, which are older.
type claims struct {
	jwt.Claims
	Bound *boundClaims `json:"kubernetes.io,omitempty"`

	SecretNamespace string `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
	SecretName      string `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`
	AccountName     string `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	AccountUID      string `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
}

// boundClaims say whose token it is and what it lives as long as.
type boundClaims struct {
	Namespace string             `json:"namespace"`
	Account   *resource.Referent `json:"serviceaccount"`
	Pod       *resource.Referent `json:"pod,omitempty"`
	Secret    *resource.Referent `json:"secret,omitempty"`
	Node      *resource.Referent `json:"node,omitempty"`
	// WarnAfter is when a token that got more time than was asked for should
	// have been renewed.
	WarnAfter *jwt.NumericDate `json:"warnafter,omitempty"`
}

// legacyIssuer is the issuer of the tokens that secrets hold.
const legacyIssuer = "kubernetes/serviceaccount"
