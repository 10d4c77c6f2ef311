package endpointslice

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// zones tracks how the CPUs of the nodes are distributed over zones. The topology
// hints of services with the annotation service.kubernetes.io/topology-mode
// depend on it.
type zones struct {
	cache *topologycache.TopologyCache

	mu      sync.Mutex
	current bool // the cache has the present nodes
}

// update gives the nodes to the cache if they have changed.
func (z *zones) update(ctx context.Context, nodes nodes) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.current {
		return nil
	}
	list, err := nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	z.cache.SetNodes(klog.FromContext(ctx), list)
	z.current = true
	return nil
}

// outdate records that the nodes have changed.
func (z *zones) outdate() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.current = false
}

// forget removes the hints of a service.
func (z *zones) forget(service string) {
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		z.cache.RemoveHints(service, family)
	}
}

// watch enqueues the services with topology hints when the zones' weights change.
func (z *zones) watch(reader client.Reader) controller.Watch[reconcile.Request] {
	affected := func(ctx context.Context, _ client.Object) []reconcile.Request {
		z.outdate()
		var list corev1.ServiceList
		if err := reader.List(ctx, &list, client.MatchingFields{byHints().Name: "true"}, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		requests := make([]reconcile.Request, len(list.Items))
		for i := range list.Items {
			requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
		}
		return requests
	}
	return controller.Map(&corev1.Node{}, affected, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return weight(e.ObjectOld.(*corev1.Node)) != weight(e.ObjectNew.(*corev1.Node))
	}}).Batched(ownBatchPeriod)
}

type nodeWeight struct {
	zone     string
	ready    bool
	milliCPU int64
}

// weight returns what the node adds to the weight of its zone.
func weight(node *corev1.Node) nodeWeight {
	w := nodeWeight{zone: node.Labels[corev1.LabelTopologyZone], milliCPU: node.Status.Allocatable.Cpu().MilliValue()}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			w.ready = c.Status == corev1.ConditionTrue
		}
	}
	return w
}

// byHints finds the services whose endpoints may get topology hints.
func byHints() controller.Index {
	return controller.Index{Name: "topology-mode", Object: &corev1.Service{}, Values: func(obj client.Object) []string {
		if hinted(obj) {
			return []string{"true"}
		}
		return nil
	}}
}

// hinted reports whether the service asks for topology hints.
func hinted(service client.Object) bool {
	annotations := service.GetAnnotations()
	_, mode := annotations[corev1.AnnotationTopologyMode]
	_, hints := annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	return mode || hints
}
