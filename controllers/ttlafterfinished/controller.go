// Package ttlafterfinished deletes finished jobs after their
// ttlSecondsAfterFinished (KEP-592).
package ttlafterfinished

import (
	"context"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5}
	return controller.Controller{
		Name:        name,
		Aliases:     []string{"ttl-after-finished-controller", "ttlafterfinished"},
		Reads:       []client.Object{&batchv1.Job{}},
		Permissions: []rbacv1.PolicyRule{controller.Can("batch", []string{"jobs"}, []string{"delete"})},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many finished jobs are synced at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const (
	name           = "ttl-after-finished"
	concurrentFlag = "concurrent-ttl-after-finished-syncs"
)

type options struct {
	concurrent int
}

func (o *options) setup(_ context.Context, env *controller.Env) error {
	r := &reconciler{client: env.Client, live: env.Live, now: env.Clock.Now}
	return controller.Run(env, controller.Options{Name: name, Workers: o.concurrent}, r, controller.For(&batchv1.Job{}, predicate.NewPredicateFuncs(func(obj client.Object) bool {
		_, ok := expiry(obj.(*batchv1.Job))
		return ok
	})))
}
