// Package cronjob owns the controller of cron jobs: it starts their jobs at the times
// of their schedules, and deletes finished ones beyond the limits of their history.
//
// Package decide makes the decisions; the scripts in its testdata show them.
package cronjob

import (
	"context"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
)

const (
	name           = "cronjob"
	concurrentFlag = "concurrent-cron-job-syncs"
	// component is the source of the events.
	component = "cronjob-controller"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5}
	return controller.Controller{
		Name:    name,
		Aliases: []string{component},
		Reads:   []client.Object{&batchv1.CronJob{}, &batchv1.Job{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("batch", []string{"cronjobs/status"}, []string{"update"}),
			// To create jobs with blockOwnerDeletion.
			controller.Can("batch", []string{"cronjobs/finalizers"}, []string{"update"}),
			controller.Can("batch", []string{"jobs"}, []string{"create", "delete"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many cron jobs are synced at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

type options struct {
	concurrent int
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.ByController(&batchv1.Job{})); err != nil {
		return err
	}
	kind, err := env.Client.GroupVersionKindFor(&batchv1.CronJob{})
	if err != nil {
		return err
	}
	r := &reconciler{
		client: env.Client, live: env.Live, recorder: env.Recorder(component), kind: kind,
		now: env.Clock.Now, skew: newSkew(),
	}
	owner := handler.EnqueueRequestForOwner(env.Manager.GetScheme(), env.Manager.GetRESTMapper(), &batchv1.CronJob{}, handler.OnlyControllerOwner())
	return controller.Run(env, controller.Options{Name: name, Workers: o.concurrent}, r,
		controller.For(&batchv1.CronJob{}),
		controller.Watch[reconcile.Request]{Object: &batchv1.Job{}, Handler: owner, Predicates: []predicate.Predicate{outcomes()}})
}

// outcomes passes the events of jobs that change a decision: all but the updates of
// jobs that go on running.
func outcomes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*batchv1.Job), e.ObjectNew.(*batchv1.Job)
		return len(before.Status.Conditions) != len(after.Status.Conditions) ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
	}}
}
