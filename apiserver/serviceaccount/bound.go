package serviceaccount

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4/jwt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// present returns an error unless the object that the token names exists, has the token's
// UID, and its graceful deletion, if any, has not passed its end.
func (a *Authenticator) present(ctx context.Context, kind, namespace string, ref *resource.Referent) error {
	_, err := find(ctx, a, kind, namespace, ref.Name, func(obj metav1.Object) error {
		if a.gone(obj) {
			return hasBeenDeleted(kind, ref.Name)
		}
		return hasUID(obj, kind, ref)
	})
	return err
}

// find returns the object of a name, and an error unless it exists and valid returns none. A
// token is accepted by what the watch cache has, also while etcd is not available. It is
// rejected by the newest state only: the object may have been created or changed just now.
func find[T metav1.Object](ctx context.Context, a *Authenticator, kind, namespace, name string, valid func(obj T) error) (T, error) {
	check := func(found runtime.Object) (T, error) {
		obj, ok := found.(T)
		if !ok {
			return obj, fmt.Errorf("%s %q is a %T", kind, name, found)
		}
		return obj, valid(obj)
	}
	gr := schema.GroupResource{Resource: kind}
	found, err := a.config.Cached(ctx, gr, namespace, name)
	if err == nil {
		if obj, invalid := check(found); invalid == nil {
			return obj, nil
		}
	}
	if err == nil || apierrors.IsNotFound(err) { // otherwise etcd has been asked
		found, err = a.config.Get(ctx, gr, namespace, name)
	}
	var obj T
	if err == nil {
		obj, err = check(found)
	}
	if err != nil {
		return obj, fmt.Errorf("service account token: %w", err)
	}
	return obj, nil
}

func hasUID(obj metav1.Object, kind string, ref *resource.Referent) error {
	if obj.GetUID() != ref.UID {
		return fmt.Errorf("the UID of %s %q is %s, not %s as in the token", kind, ref.Name, obj.GetUID(), ref.UID)
	}
	return nil
}

func hasBeenDeleted(kind, name string) error { return fmt.Errorf("%s %q has been deleted", kind, name) }

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
