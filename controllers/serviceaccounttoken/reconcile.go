package serviceaccounttoken

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads service accounts, and secrets of type
// kubernetes.io/service-account-token. It alone writes these secrets' tokens, and
// deletes them with their account.
type reconciler struct {
	client, live client.Client
	rootCA       []byte
	sign         func(*corev1.Secret, *corev1.ServiceAccount) (string, error)
}

// Reconcile completes a secret, or deletes it if its account does not exist.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := r.client.Get(ctx, req.NamespacedName, secret); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !isToken(secret) || secret.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	account, err := r.account(ctx, secret)
	switch {
	case err != nil:
		err = fmt.Errorf("service account of the secret: %w", err)
	case account == nil:
		klog.FromContext(ctx).V(2).Info("Deleting token of a service account that does not exist", "secret", klog.KObj(secret))
		err = r.client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
	case incomplete(secret, r.rootCA):
		was := secret.DeepCopy()
		if err = complete(secret, account, r.rootCA, r.sign); err == nil {
			err = r.client.Patch(ctx, secret, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
		}
	}
	if err == nil || apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, fmt.Errorf("secret %s: %w", req.NamespacedName, err)
}

// account returns the account of a secret, or nil. The cache of accounts may be
// behind that of secrets, so a missing account is confirmed by the API server.
func (r *reconciler) account(ctx context.Context, s *corev1.Secret) (*corev1.ServiceAccount, error) {
	key := client.ObjectKey{Namespace: s.Namespace, Name: s.Annotations[corev1.ServiceAccountNameKey]}
	for _, c := range []client.Client{r.client, r.live} {
		account := &corev1.ServiceAccount{}
		err := c.Get(ctx, key, account)
		if err == nil && belongs(s, account) {
			return account, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	return nil, nil
}

// secretsOf returns the secrets of a service account.
func (r *reconciler) secretsOf(ctx context.Context, account client.Object) []reconcile.Request {
	secrets := &corev1.SecretList{}
	if err := r.client.List(ctx, secrets, client.InNamespace(account.GetNamespace()), client.MatchingFields{accountIndex: account.GetName()}); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list the secrets of service account", "serviceAccount", klog.KObj(account))
		return nil
	}
	var requests []reconcile.Request
	for i := range secrets.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&secrets.Items[i])})
	}
	return requests
}
