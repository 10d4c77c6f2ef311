package serviceaccount

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"svc.dev/svc/apis/resource"
)

// invalidSinceLabel marks a secret whose token must not be accepted any more.
const invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"

// errMarked is the error of a token that the cleaner of unused tokens has marked.
var errMarked = errors.New("is marked invalid")

// legacy returns the account of a token of a secret of type
// kubernetes.io/service-account-token. Such a token does not expire; with Lookup
// it becomes invalid when the secret or the account is deleted, and its uses are tracked.
func (a *Authenticator) legacy(ctx context.Context, claims tokenClaims, token string) (*serviceaccount.ServiceAccountInfo, error) {
	info := &serviceaccount.ServiceAccountInfo{Namespace: claims.SecretNamespace, Name: claims.AccountName, UID: claims.AccountUID}
	if claims.Issuer != legacyIssuer || info.Namespace == "" || info.Name == "" || info.UID == "" || claims.SecretName == "" ||
		claims.Subject != serviceaccount.MakeUsername(info.Namespace, info.Name) {
		return nil, errors.New("service account token: its claims do not name one account and its secret")
	}
	if !a.config.Lookup {
		return info, nil
	}
	secret, err := find(ctx, a, "secrets", info.Namespace, claims.SecretName, func(secret *corev1.Secret) error {
		switch {
		case secret.DeletionTimestamp != nil:
			return hasBeenDeleted("secrets", secret.Name)
		case subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) == 0:
			return fmt.Errorf("it is not the one in secret %q", secret.Name)
		case secret.Labels[invalidSinceLabel] != "":
			return fmt.Errorf("secret %q %w; use kubectl create token, or remove its label %s", secret.Name, errMarked, invalidSinceLabel)
		}
		return nil
	})
	if errors.Is(err, errMarked) {
		a.count(LegacyInvalid)
		audit.AddAuditAnnotation(ctx, "authentication.k8s.io/legacy-token-invalidated", secret.Name+"/"+secret.Namespace)
		a.labelUse(ctx, secret) // the cleaner removes what is not used
	}
	if err != nil {
		return nil, err
	}
	account, err := find(ctx, a, "serviceaccounts", info.Namespace, info.Name, func(account *corev1.ServiceAccount) error {
		if account.DeletionTimestamp != nil { // at once, as that of the secret
			return hasBeenDeleted("serviceaccounts", account.Name)
		}
		return hasUID(account, "serviceaccounts", &resource.Referent{Name: info.Name, UID: types.UID(info.UID)})
	})
	if err != nil {
		return nil, err
	}
	a.track(ctx, secret, account)
	return info, nil
}
