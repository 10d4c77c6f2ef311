package hostloadbalancer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads services, nodes and EndpointSlices; it alone writes
// status.loadBalancer of the services that it owns, and their condition
// LoadBalancerPortsError.
type reconciler struct {
	client   client.Client
	recorder record.EventRecorder
	reserved []int
	now      func() time.Time
	// warned are the warnings about hidden node ports of the last sync.
	warned map[string]bool
	// kept are the ports that services keep, by UID, also while they have no addresses.
	kept map[types.UID][]port
}

// Reconcile syncs all services.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	s, err := r.read(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var errs []error
	warned, kept := map[string]bool{}, map[types.UID][]port{}
	for _, result := range s.decide() {
		for _, hidden := range result.hidden {
			r.warn(hidden, warned)
		}
		if len(result.kept) > 0 {
			kept[result.service.UID] = result.kept
		}
		if err := r.write(ctx, result); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("service %s/%s: %w", result.service.Namespace, result.service.Name, err))
		}
	}
	r.warned, r.kept = warned, kept
	return reconcile.Result{}, errors.Join(errs...)
}

// warn records an event about a service, unless the last sync had it, too.
func (r *reconciler) warn(w warning, warned map[string]bool) {
	key := string(w.service.UID) + w.message
	if !r.warned[key] {
		r.recorder.Event(w.service, corev1.EventTypeWarning, reasonConflict, w.message)
	}
	warned[key] = true
}

func (r *reconciler) read(ctx context.Context) (*state, error) {
	s := &state{reserved: r.reserved, kept: r.kept}
	var services corev1.ServiceList
	var nodes corev1.NodeList
	var endpoints discoveryv1.EndpointSliceList
	for _, list := range []client.ObjectList{&services, &nodes, &endpoints} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
	}
	for i := range services.Items {
		s.services = append(s.services, &services.Items[i])
	}
	for i := range nodes.Items {
		s.nodes = append(s.nodes, &nodes.Items[i])
	}
	for i := range endpoints.Items {
		s.slices = append(s.slices, &endpoints.Items[i])
	}
	return s, nil
}

// The reasons of the condition LoadBalancerPortsError. That of a conflict is that of the events
// about hidden node ports, too.
const (
	reasonConflict = "PortConflict"
	reasonServed   = "PortsServed"
)

// write updates a service's status, and records an event when it changes.
func (r *reconciler) write(ctx context.Context, result result) error {
	before := result.service
	svc := before.DeepCopy()
	ingress := result.ingress()
	moved := !slices.EqualFunc(before.Status.LoadBalancer.Ingress, ingress, func(a, b corev1.LoadBalancerIngress) bool {
		return a.IP == b.IP && slices.Equal(a.Ports, b.Ports)
	})
	if moved {
		svc.Status.LoadBalancer = corev1.LoadBalancerStatus{Ingress: ingress}
	}
	explained := r.explain(svc, result.problem)
	if !moved && !explained {
		return nil
	}
	if err := r.client.Status().Patch(ctx, svc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	switch {
	case result.problem != "" && explained:
		klog.FromContext(ctx).V(2).Info("Service has no load balancer", "service", klog.KObj(svc), "reason", result.problem)
		r.recorder.Event(svc, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer: "+result.problem)
	case moved:
		klog.FromContext(ctx).V(2).Info("Updated load balancer", "service", klog.KObj(svc), "addresses", result.addresses)
		r.recorder.Event(svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	}
	return nil
}

// explain sets the condition of a service with a problem, or whose problem is solved,
// and reports whether it has changed.
func (r *reconciler) explain(svc *corev1.Service, problem string) bool {
	condition := metav1.Condition{
		Type: corev1.LoadBalancerPortsError, Status: metav1.ConditionTrue, Reason: reasonConflict, Message: problem,
		ObservedGeneration: svc.Generation, LastTransitionTime: metav1.NewTime(r.now()),
	}
	old := meta.FindStatusCondition(svc.Status.Conditions, condition.Type)
	if problem == "" {
		if old == nil || old.Status == metav1.ConditionFalse {
			return false
		}
		condition.Status, condition.Reason = metav1.ConditionFalse, reasonServed
	}
	return meta.SetStatusCondition(&svc.Status.Conditions, condition)
}
