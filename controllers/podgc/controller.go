// Package podgc deletes pods that no node agent and no other controller deletes:
// orphaned pods, unscheduled pods that are terminating, terminating pods on nodes
// that are out of service, and terminated pods above a threshold.
package podgc

import (
	"context"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{threshold: 12500}
	return controller.Controller{
		Name:    "podgc",
		Aliases: []string{"pod-garbage-collector-controller"},
		Reads:   []client.Object{&corev1.Pod{}, &corev1.Node{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"pods"}, []string{"delete"}),
			controller.Can("", []string{"pods/status"}, []string{"update"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.threshold, "terminated-pod-gc-threshold", o.threshold,
				"How many terminated pods may exist before the oldest are deleted. 0 or less: any number.")
		},
		Setup: o.setup,
	}
}

type options struct {
	threshold int
}

const workers = 8

// quarantine is how long a node must not exist before its pods are orphaned.
const quarantine = 40 * time.Second

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.PodsByNode(), terminatedIndex()); err != nil {
		return err
	}
	r := &reconciler{
		client: env.Client, live: env.Live, now: env.Clock.Now,
		threshold: o.threshold, quarantine: quarantine, missing: map[string]time.Time{},
	}
	w := &watcher{threshold: o.threshold, nodes: map[string]bool{}}
	return controller.Run(env, controller.Options{Name: "podgc", Workers: workers}, r, w.pods(), w.terminatedPods(), w.nodeEvents())
}

// terminatedIndex finds the pods in phase Succeeded or Failed.
func terminatedIndex() controller.Index {
	return controller.Index{Name: "terminated", Object: &corev1.Pod{}, Values: func(obj client.Object) []string {
		if pods.IsTerminal(obj.(*corev1.Pod)) {
			return []string{terminated}
		}
		return nil
	}}
}

// terminated is the only value of terminatedIndex.
const terminated = "true"
