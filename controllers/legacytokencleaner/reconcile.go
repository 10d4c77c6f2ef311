package legacytokencleaner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/podspec"
)

// reconciler reads the secrets of tokens, their accounts, the pods that use them, and since
// when uses are tracked. It alone writes the label invalidSinceLabel, and deletes secrets that
// have had it for long.
type reconciler struct {
	client, live client.Client
	clock        clock.PassiveClock
	period       time.Duration
}

// Reconcile marks or deletes the secret of a token that has not been used for long.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := r.client.Get(ctx, req.NamespacedName, secret); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !isToken(secret) {
		return reconcile.Result{}, nil
	}
	s, err := r.state(ctx, secret)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("secret %s: %w", req.NamespacedName, err)
	}
	logger := klog.FromContext(ctx).WithValues("secret", klog.KObj(secret))
	now := r.clock.Now()
	switch decide(s, now, r.period) {
	case mark:
		logger.Info("Marking unused service account token as invalid")
		was := secret.DeepCopy()
		if secret.Labels == nil {
			secret.Labels = map[string]string{}
		}
		secret.Labels[invalidSinceLabel] = now.UTC().Format(dateFormat)
		err = r.client.Patch(ctx, secret, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	case remove:
		logger.Info("Deleting service account token that has long been invalid")
		err = r.client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
	case keep:
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("secret %s: %w", req.NamespacedName, err)
	}
	return reconcile.Result{RequeueAfter: interval}, nil
}

// state returns what decides on the secret. It reads pods and the config map only for a secret
// that would be invalidated otherwise.
func (r *reconciler) state(ctx context.Context, secret *corev1.Secret) (state, error) {
	s := state{secret: secret}
	account := &corev1.ServiceAccount{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: secret.Namespace, Name: secret.Annotations[corev1.ServiceAccountNameKey]}, account)
	if client.IgnoreNotFound(err) != nil {
		return s, err
	}
	if err != nil || secret.Annotations[corev1.ServiceAccountUIDKey] != string(account.UID) || !generated(secret, account) {
		return s, nil
	}
	s.account = account
	config := &corev1.ConfigMap{}
	if err := r.live.Get(ctx, tracking, config); err != nil {
		return s, fmt.Errorf("since when uses of tokens are tracked: %w", err)
	}
	// Without a valid date, which the API server writes, no token counts as unused.
	if since, err := time.Parse(dateFormat, config.Data["since"]); err == nil {
		s.tracked = since
	}
	if s.mounted, err = r.mounted(ctx, secret); err != nil {
		return s, err
	}
	return s, nil
}

// mounted reports whether a pod uses the secret.
func (r *reconciler) mounted(ctx context.Context, secret *corev1.Secret) (bool, error) {
	pods := &corev1.PodList{}
	if err := r.client.List(ctx, pods, client.InNamespace(secret.Namespace)); err != nil {
		return false, err
	}
	for i := range pods.Items {
		for ref := range podspec.References(&pods.Items[i]) {
			if ref.Kind == podspec.Secret && ref.Name == secret.Name {
				return true, nil
			}
		}
	}
	return false, nil
}
