package tokencleaner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads the secrets of bootstrap tokens, and deletes them when they
// expire.
type reconciler struct {
	client client.Client
	now    func() time.Time
}

// Reconcile deletes a secret that has expired, and requeues one that will. A secret
// whose expiration cannot be read has expired; one without expiration never does.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := r.client.Get(ctx, req.NamespacedName, secret); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !isToken(secret) || secret.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	left, expired := secrets.GetExpiration(secret, r.now())
	if !expired {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	klog.FromContext(ctx).Info("Deleting expired bootstrap token", "secret", klog.KObj(secret))
	// The user may have extended it, and the cache be behind: then this is a conflict,
	// which is retried.
	err := r.client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("delete secret %s: %w", req.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}
