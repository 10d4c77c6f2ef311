package serviceaccounttoken

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// reference is what the field secrets of a service account may have for a token. It is made
// from the last state of the token's secret, which is in no cache after its deletion.
type reference struct {
	namespace, secret, account string
	// uid is that of the account, empty for a token that was not complete.
	uid types.UID
}

// referenceTo returns the reference to a token.
func referenceTo(token *corev1.Secret) reference {
	return reference{token.Namespace, token.Name, token.Annotations[corev1.ServiceAccountNameKey], types.UID(token.Annotations[corev1.ServiceAccountUIDKey])}
}

// isTo reports whether a secret with the name of the reference is a token of the account.
func (r reference) isTo(s *corev1.Secret) bool {
	of := referenceTo(s)
	return isToken(s) && of.account == r.account && (of.uid == r.uid || of.uid == "" || r.uid == "")
}

// referenceEvents enqueues the references to tokens that are deleted, and to those that are
// replaced or become another account's.
func referenceEvents() controller.Watch[reference] {
	return controller.Watch[reference]{Object: &corev1.Secret{}, Handler: handler.TypedFuncs[client.Object, reference]{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q controller.Queue[reference]) {
			before := e.ObjectOld.(*corev1.Secret)
			if ref := referenceTo(before); isToken(before) && !ref.isTo(e.ObjectNew.(*corev1.Secret)) {
				q.Add(ref)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q controller.Queue[reference]) {
			if s := e.Object.(*corev1.Secret); isToken(s) {
				q.Add(referenceTo(s))
			}
		},
	}}
}

// referenceReconciler reads secrets and service accounts. It alone removes the references of
// accounts to tokens.
//
// As in kube-controller-manager, only an event makes it remove a reference: an account may
// refer to a secret that does not exist yet, so a reference without a secret need not be to a
// deleted token. References to tokens that are deleted while no controller runs stay.
type referenceReconciler struct {
	client, live client.Client
}

// Reconcile removes a reference, unless the secret is a token of the account again.
func (r *referenceReconciler) Reconcile(ctx context.Context, ref reference) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: ref.namespace, Name: ref.secret}, secret)
	if client.IgnoreNotFound(err) != nil || err == nil && ref.isTo(secret) {
		return reconcile.Result{}, err
	}
	// The cache may not have the reference yet, and no event would follow.
	account := &corev1.ServiceAccount{}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: ref.namespace, Name: ref.account}, account); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	was := account.DeepCopy()
	account.Secrets = slices.DeleteFunc(account.Secrets, func(s corev1.ObjectReference) bool { return s.Name == ref.secret })
	if ref.uid != "" && ref.uid != account.UID || len(account.Secrets) == len(was.Secrets) {
		return reconcile.Result{}, nil
	}
	klog.FromContext(ctx).V(2).Info("Removing reference to deleted token from service account", "secret", klog.KRef(ref.namespace, ref.secret), "serviceAccount", klog.KObj(account))
	err = r.client.Patch(ctx, account, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("service account %s/%s: remove reference to secret %s: %w", ref.namespace, ref.account, ref.secret, err)
	}
	return reconcile.Result{}, nil
}
