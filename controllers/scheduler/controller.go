// Package scheduler owns the scheduler, which binds pods to nodes.
//
// One goroutine (reconcile.go) owns the snapshot of the cluster and the queue of
// pending pods (decide.go): data flows one way, from the watches (watch.go) through
// its inbox into the decisions, and from these to goroutines that bind pods
// (bind.go), delete the victims of preemption (preempt.go), write the condition
// PodScheduled (conditions.go) and record events (events.go). A pod that is being bound is assumed to be on its node, so that the
// next decision need not wait; a watch confirms it.
//
// All state is in the API: a scheduler that starts reads all pods and nodes before
// it decides. Two schedulers cannot bind the same pod, as the API server rejects
// the binding of a pod that has a node.
package scheduler

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{name: corev1.DefaultSchedulerName}
	return controller.Controller{
		Name:    "scheduler",
		Aliases: []string{"kube-scheduler"},
		Reads:   reads(),
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"pods/binding"}, []string{"create"}),
			controller.Can("", []string{"pods"}, []string{"delete"}),
			controller.Can("", []string{"pods/status", "persistentvolumes", "persistentvolumeclaims"}, []string{"patch"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.name, nameFlag, o.name, "The spec.schedulerName of the pods that are given a node. Other pods are left to other schedulers.")
		},
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const nameFlag = "scheduler-name"

type options struct {
	name string
}

func (o *options) validate() []error {
	if o.name == "" {
		return []error{fmt.Errorf("--%s: must not be empty", nameFlag)}
	}
	return nil
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	s := &scheduler{
		name:   o.name,
		client: env.Client,
		plain:  env.Live,
		live:   env.Live,
		clock:  env.Clock,
		scheme: env.Manager.GetScheme(),

		conditions: newConditionReconciler(env.Client, env.Clock.Now),
	}
	for _, k := range kinds() {
		informer, err := env.Manager.GetCache().GetInformer(ctx, k.object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", k.object, err)
		}
		s.watches = append(s.watches, watch{informer, k.changed})
	}
	if err := controller.Run(env, controller.Options{Name: "scheduler-conditions", Workers: conditionWorkers}, s.conditions, s.conditions.trigger.Watch()); err != nil {
		return err
	}
	return env.Manager.Add(s)
}
