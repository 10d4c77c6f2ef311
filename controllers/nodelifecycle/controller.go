// Package nodelifecycle detects nodes that are unreachable or not ready, taints
// them, and has their pods evicted.
//
// It sets the conditions of an unreachable node to Unknown, and makes the node's
// pods not ready. Package fleet decides when a node is unreachable and when its
// pods are evicted.
//
// There is no periodic monitoring. A renewed lease only sets a time in memory. A
// node is synced when it changes, and when its grace period ends.
package nodelifecycle

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/nodelifecycle/fleet"
)

// New declares the controller.
func New() controller.Controller {
	o := newOptions()
	return controller.Controller{
		Name:    "nodelifecycle",
		Aliases: []string{"node-lifecycle-controller"},
		Reads:   []client.Object{&corev1.Node{}, &coordinationv1.Lease{}, &corev1.Pod{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"nodes"}, []string{"patch"}),
			controller.Can("", []string{"nodes/status", "pods/status"}, []string{"update"}),
		},
		Flags:    o.addFlags,
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const workers = 8

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.PodsByNode()); err != nil {
		return err
	}
	r := &reconciler{
		client: env.Client, live: env.Live, recorder: env.Recorder("node-controller"), now: env.Clock.Now, metrics: newMetrics(),
		fleet: fleet.New(o.config(), env.Clock.Now()),
	}
	trigger := &controller.Trigger[reconcile.Request]{}
	r.enqueue = trigger.Enqueue
	return controller.Run(env, controller.Options{Name: "nodelifecycle", Workers: workers}, r,
		trigger.Watch(), r.watchNodes(), r.watchLeases())
}
