// Package tainteviction evicts pods from nodes with NoExecute taints that they do
// not tolerate, or not any longer.
package tainteviction

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/eviction"
	"svc.dev/svc/controllers/index"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:    "tainteviction",
		Aliases: []string{"taint-eviction-controller"},
		Reads:   []client.Object{&corev1.Pod{}, &corev1.Node{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"pods"}, []string{"delete"}),
			controller.Can("", []string{"pods/status"}, []string{"update"}),
		},
		Setup: setup,
	}
}

const workers = 8

func setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.PodsByNode()); err != nil {
		return err
	}
	r := &reconciler{
		client:  env.Client,
		evictor: eviction.New(env.Client, env.Recorder("taint-eviction-controller"), env.Clock.Now, reason),
		taints:  taints{now: env.Clock.Now, byNode: map[string]map[corev1.Taint]time.Time{}},
	}
	return controller.Run(env, controller.Options{Name: "tainteviction", Workers: workers}, r, r.watchNodes(env.Manager.GetCache()), r.watchPods())
}
