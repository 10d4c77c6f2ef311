// Package replicaset owns the controllers of replica sets and replication
// controllers: they create and delete pods until spec.replicas of them are active.
//
// A replica set owns the active pods of its namespace that its selector matches.
// When there are too few it creates pods from its template, and when there are
// too many it deletes some, in the order of decide_deletion.go. Its status counts
// them.
package replicaset

import (
	"context"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/adoption"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// New declares the controller of replica sets.
func New() controller.Controller {
	return declare(replicaSets(), "concurrent-replicaset-syncs", "How many replica sets are synced at the same time.")
}

// NewForReplicationControllers declares the controller of replication
// controllers, the older kind with the same semantics.
func NewForReplicationControllers() controller.Controller {
	return declare(replicationControllers(), "concurrent-rc-syncs", "How many replication controllers are synced at the same time.")
}

func declare(k kind, flag, usage string) controller.Controller {
	// Twice as many as in kube-controller-manager, as a sync mostly waits for
	// responses. With more, fewer events of a replica set share a sync.
	concurrent := 10
	return controller.Controller{
		Name:    k.name,
		Aliases: []string{k.name + "-controller"},
		Reads:   []client.Object{k.empty(), &corev1.Pod{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"pods"}, []string{"create", "patch", "delete"}),
			controller.Can(k.group, []string{k.resource + "/status"}, []string{"update"}),
			controller.Can(k.group, []string{k.resource + "/finalizers"}, []string{"update"}),
		},
		Flags:    func(fs *pflag.FlagSet) { fs.IntVar(&concurrent, flag, concurrent, usage) },
		Validate: func() []error { return controller.AtLeastOne(flag, concurrent) },
		Setup: func(ctx context.Context, env *controller.Env) error {
			return setup(ctx, env, k, concurrent)
		},
	}
}

// minSyncInterval is the minimum time between two syncs of a replica set, so that
// one sync counts all pods that start together.
const minSyncInterval = 100 * time.Millisecond

func setup(ctx context.Context, env *controller.Env, k kind, concurrent int) error {
	if err := env.Indexes.Need(ctx, index.ByController(&corev1.Pod{}), index.ByController(k.empty())); err != nil {
		return err
	}
	gvk, err := env.Client.GroupVersionKindFor(k.empty())
	if err != nil {
		return err
	}
	r := &reconciler{
		kind: k, gvk: gvk, client: env.Client, live: env.Live, now: env.Clock.Now,
		pods: pods.Control{Client: env.Client, Recorder: env.Recorder(k.component)},
	}
	cache := env.Manager.GetCache()
	adopters := func(ctx context.Context, pod client.Object) []reconcile.Request {
		sets, err := k.list(ctx, cache, client.InNamespace(pod.GetNamespace()))
		if err != nil {
			return nil // the manager stops
		}
		return adoption.Matching(sets, selector, pod)
	}
	return controller.Run(env, controller.Options{Name: k.name, Workers: concurrent, MinInterval: minSyncInterval}, r,
		controller.For(k.empty()), adoption.Watch(&corev1.Pod{}, gvk.GroupKind(), adopters))
}
