// Package nodeipam allocates a pod CIDR to every node, from the cluster CIDR of
// each IP family.
package nodeipam

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{}
	return controller.Controller{
		Name:        "nodeipam",
		Aliases:     []string{"node-ipam-controller"},
		Reads:       []client.Object{&corev1.Node{}},
		Permissions: []rbacv1.PolicyRule{controller.Can("", []string{"nodes"}, []string{"patch"})},
		Flags:       o.addFlags,
		Validate:    o.validate,
		Setup:       o.setup,
	}
}

const workers = 4

// setup adds the controller if --allocate-node-cidrs is set.
func (o *options) setup(_ context.Context, env *controller.Env) error {
	if !o.allocate {
		return nil
	}
	clusters, err := o.clusters()
	if err != nil {
		return err
	}
	services, err := families(serviceFlag, o.serviceCIDR)
	if err != nil {
		return err
	}
	r := &reconciler{
		client: env.Client, live: env.Live, recorder: env.Recorder("cidrAllocator"),
		allocator: newAllocator(clusters, services), waiting: map[string]bool{},
	}
	trigger := &controller.Trigger[reconcile.Request]{}
	r.enqueue = trigger.Enqueue
	changed := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return before.UID != after.UID || !slices.Equal(before.Spec.PodCIDRs, after.Spec.PodCIDRs)
	}}
	return controller.Run(env, controller.Options{Name: "nodeipam", Workers: workers}, r,
		trigger.Watch(), controller.For(&corev1.Node{}, changed))
}
