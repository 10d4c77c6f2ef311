package devicetainteviction

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// statusReconciler reads rules and what they select. It is the only writer of the rules'
// condition EvictionInProgress.
type statusReconciler struct {
	reader
	now     func() time.Time
	trigger controller.Trigger[reconcile.Request]

	mu sync.Mutex
	// evicted are the pods that were evicted because of rules, by their names.
	evicted map[string]tally
}

// tally is how many pods this process has evicted because of a rule.
type tally struct {
	rule types.UID
	pods int
}

// enqueue has the status of a rule updated in a while.
func (r *statusReconciler) enqueue(rule *resourcev1.DeviceTaintRule) {
	r.trigger.Enqueue(reconcile.Request{NamespacedName: client.ObjectKey{Name: rule.Name}})
}

// add counts a pod that was evicted because of a rule.
func (r *statusReconciler) add(rule *resourcev1.DeviceTaintRule) {
	defer r.enqueue(rule)
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.evicted[rule.Name]
	if t.rule != rule.UID {
		t = tally{rule: rule.UID}
	}
	t.pods++
	r.evicted[rule.Name] = t
}

// count returns how many pods were evicted because of a rule.
func (r *statusReconciler) count(rule *resourcev1.DeviceTaintRule) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.evicted[rule.Name]; t.rule == rule.UID {
		return t.pods
	}
	return 0
}

func (r *statusReconciler) forget(rule string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.evicted, rule)
}

// Reconcile updates the condition of a rule.
func (r *statusReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	rule, err := r.rules.Get(ctx, req.NamespacedName)
	if apierrors.IsNotFound(err) {
		r.forget(req.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if left := wait(rule, r.now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	counts, err := r.counts(ctx, rule)
	if err != nil {
		return reconcile.Result{}, err
	}
	if set(rule, condition(rule, counts, r.count(rule)), r.now()) {
		if err := r.rules.UpdateStatus(ctx, rule); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("status of DeviceTaintRule %s: %w", rule.Name, err)
		}
	}
	if counts.pods > 0 && rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute {
		return reconcile.Result{RequeueAfter: statusPeriod}, nil
	}
	return reconcile.Result{}, nil
}

// counts returns what a rule selects.
func (r *statusReconciler) counts(ctx context.Context, rule *resourcev1.DeviceTaintRule) (counts, error) {
	if e := rule.Spec.Taint.Effect; e != resourcev1.DeviceTaintEffectNoExecute && e != resourcev1.DeviceTaintEffectNone {
		return counts{}, nil
	}
	claims, err := r.listClaims(ctx)
	if err != nil {
		return counts{}, err
	}
	claims = slices.DeleteFunc(claims, func(c *resourcev1.ResourceClaim) bool { return len(selectedOf(rule, c)) == 0 })
	users, err := r.users(ctx, claims)
	if err != nil {
		return counts{}, err
	}
	rules, err := r.listRules(ctx)
	if err != nil {
		return counts{}, err
	}
	published, err := r.listSlices(ctx)
	if err != nil {
		return counts{}, err
	}
	return count(rule, newTaints(rules, published), claims, users), nil
}
