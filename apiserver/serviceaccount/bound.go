package serviceaccount

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"

	"svc.dev/svc/apis/resource"
)

// bound recognises the account of a token that a TokenRequest got: it is valid
// as long as the account and the object to which it is bound are there.
func (a *Authenticator) bound(ctx context.Context, said claims) (*serviceaccount.ServiceAccountInfo, error) {
	b := said.Bound
	if b.Account == nil || b.Account.Name == "" || b.Account.UID == "" || said.Subject != serviceaccount.MakeUsername(b.Namespace, b.Account.Name) {
		return nil, errors.New("service account token: its claims do not name one account")
	}
	info := &serviceaccount.ServiceAccountInfo{
		Namespace: b.Namespace, Name: b.Account.Name, UID: string(b.Account.UID),
		CredentialID: tokenjwt.CredentialIDForJTI(said.ID),
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
		// The node of a pod is only told: the pod's end is the token's.
		if b.Pod == nil {
			if err := a.present(ctx, "nodes", "", b.Node); err != nil {
				return nil, err
			}
		}
		info.NodeName, info.NodeUID = b.Node.Name, string(b.Node.UID)
	}
	a.noteStale(ctx, said)
	return info, nil
}

// present makes sure that the object that the token means is there: not a later
// one of the same name, and not one whose graceful deletion should have ended a
// while ago.
func (a *Authenticator) present(ctx context.Context, kind, namespace string, meant *resource.Referent) error {
	found, err := a.config.Get(ctx, schema.GroupResource{Resource: kind}, namespace, meant.Name)
	if err != nil {
		return fmt.Errorf("service account token: %w", err)
	}
	obj, err := meta.Accessor(found)
	if err != nil {
		return fmt.Errorf("service account token: %w", err)
	}
	if obj.GetUID() != meant.UID {
		return fmt.Errorf("service account token: the UID of %s %q is %s, not %s as in the token", kind, meant.Name, obj.GetUID(), meant.UID)
	}
	if a.gone(obj) {
		return fmt.Errorf("service account token: %s %q has been deleted", kind, meant.Name)
	}
	return nil
}

// gone allows clocks the same difference as checkTime does.
func (a *Authenticator) gone(obj metav1.Object) bool {
	deleted := obj.GetDeletionTimestamp()
	return deleted != nil && deleted.Time.Before(a.config.Clock.Now().Add(-jwt.DefaultLeeway))
}

// noteStale notes in the audit log that a client goes on with a mounted token
// that it should have read again.
func (a *Authenticator) noteStale(ctx context.Context, said claims) {
	warnAfter := said.Bound.WarnAfter
	if warnAfter == nil {
		return
	}
	if late := a.config.Clock.Since(warnAfter.Time()); late > 0 {
		audit.AddAuditAnnotation(ctx, "authentication.k8s.io/stale-token",
			fmt.Sprintf("subject: %s, seconds after warning threshold: %d", said.Subject, int64(late.Seconds())))
	}
}
