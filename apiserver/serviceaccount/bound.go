package serviceaccount

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"

	"svc.dev/svc/apis/resource"
)

// bound returns the account of a token of a TokenRequest, which is valid while the
// account and the object that it is bound to exist.
func (a *Authenticator) bound(ctx context.Context, claims tokenClaims) (*serviceaccount.ServiceAccountInfo, error) {
	b := claims.Bound
	if b.Account == nil || b.Account.Name == "" || b.Account.UID == "" || claims.Subject != serviceaccount.MakeUsername(b.Namespace, b.Account.Name) {
		return nil, errors.New("service account token: its claims do not name one account")
	}
	info := &serviceaccount.ServiceAccountInfo{
		Namespace: b.Namespace, Name: b.Account.Name, UID: string(b.Account.UID),
	}
	if a.config.CredentialIDs {
		info.CredentialID = tokenjwt.CredentialIDForJTI(claims.ID)
	}
	if err := a.present(ctx, "serviceaccounts", b.Namespace, b.Account); err != nil {
		return nil, err
	}
	if b.Secret != nil {
		if err := a.present(ctx, "secrets", b.Namespace, b.Secret); err != nil {
			return nil, err
		}
	}
	if b.Pod != nil {
		if err := a.present(ctx, "pods", b.Namespace, b.Pod); err != nil {
			return nil, err
		}
		info.PodName, info.PodUID = b.Pod.Name, string(b.Pod.UID)
	}
	if b.Node != nil {
		// The node of a bound pod is only informative: the token ends with the pod.
		if b.Pod == nil {
			if err := a.present(ctx, "nodes", "", b.Node); err != nil {
				return nil, err
			}
		}
		if a.config.CredentialIDs {
			info.NodeName, info.NodeUID = b.Node.Name, string(b.Node.UID)
		}
	}
	a.noteStale(ctx, claims)
	return info, nil
}

// present returns an error unless find returns the object.
func (a *Authenticator) present(ctx context.Context, kind, namespace string, ref *resource.Referent) error {
	_, err := a.find(ctx, kind, namespace, ref)
	return err
}

// find returns the object that the token names. It is an error unless the object exists,
// has the token's UID, and its graceful deletion, if any, has not passed its end.
func (a *Authenticator) find(ctx context.Context, kind, namespace string, ref *resource.Referent) (runtime.Object, error) {
	found, err := a.config.Get(ctx, schema.GroupResource{Resource: kind}, namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("service account token: %w", err)
	}
	obj, err := meta.Accessor(found)
	if err != nil {
		return nil, fmt.Errorf("service account token: %w", err)
	}
	if obj.GetUID() != ref.UID {
		return nil, fmt.Errorf("service account token: the UID of %s %q is %s, not %s as in the token", kind, ref.Name, obj.GetUID(), ref.UID)
	}
	if a.gone(obj) {
		return nil, fmt.Errorf("service account token: %s %q has been deleted", kind, ref.Name)
	}
	return found, nil
}

// gone reports whether the end of the object's graceful deletion has passed. It
// allows clocks the same difference as checkTime does.
func (a *Authenticator) gone(obj metav1.Object) bool {
	deleted := obj.GetDeletionTimestamp()
	return deleted != nil && deleted.Time.Before(a.config.Clock.Now().Add(-jwt.DefaultLeeway))
}

// noteStale counts the use of a token, and adds an audit annotation if a client uses an old mounted token instead
// of reading the renewed one from its file.
func (a *Authenticator) noteStale(ctx context.Context, claims tokenClaims) {
	warnAfter := claims.Bound.WarnAfter
	if warnAfter == nil {
		a.count(Valid)
		return
	}
	late := a.config.Clock.Since(warnAfter.Time())
	if late > 0 {
		a.count(Stale)
		audit.AddAuditAnnotation(ctx, "authentication.k8s.io/stale-token",
			fmt.Sprintf("subject: %s, seconds after warning threshold: %d", claims.Subject, int64(late.Seconds())))
		return
	}
	a.count(Valid)
}
