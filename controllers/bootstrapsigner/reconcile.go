package bootstrapsigner

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/util/secrets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads the config map cluster-info and the secrets of bootstrap tokens.
// It alone writes the config map's signatures.
type reconciler struct {
	client client.Client
	now    func() time.Time
}

// Reconcile writes the signatures of the config map, and requeues it for the next
// expiration of a token that signs.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	info := &corev1.ConfigMap{}
	if err := r.client.Get(ctx, req.NamespacedName, info); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, ok := info.Data[api.KubeConfigKey]; !ok || info.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	tokens, next, err := r.tokens(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	data, err := signed(info.Data, tokens)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !maps.Equal(data, info.Data) {
		was := info.DeepCopy()
		info.Data = data
		err = r.client.Patch(ctx, info, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("config map %s: %w", req.NamespacedName, err)
		}
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// tokens returns the keys of the tokens that may sign, by ID, and the time until the
// first of them expires, 0 if none does.
func (r *reconciler) tokens(ctx context.Context) (keys map[string]string, next time.Duration, err error) {
	list := &corev1.SecretList{}
	if err := r.client.List(ctx, list, client.InNamespace(metav1.NamespaceSystem), client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("list secrets: %w", err)
	}
	keys = map[string]string{}
	for i := range list.Items {
		secret := &list.Items[i]
		if !isToken(secret) {
			continue
		}
		id, key, ok := signingKey(secret, r.now())
		if !ok {
			continue
		}
		keys[id] = key
		if left, _ := secrets.GetExpiration(secret, r.now()); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return keys, next, nil
}
