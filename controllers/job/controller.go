// Package job owns the controller of jobs: it runs their pods until enough have
// succeeded or too many have failed, and counts each of them once.
//
// Every pod of a job has the finalizer batch.kubernetes.io/job-tracking until the
// job's status has counted it (KEP-2307). Package decide makes the decisions; the
// scripts in testdata show them.
package job

import (
	"context"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5}
	return controller.Controller{
		Name:    "job",
		Aliases: []string{"job-controller"},
		Reads:   []client.Object{&batchv1.Job{}, &corev1.Pod{}, &schedulingv1beta1.Workload{}, &schedulingv1beta1.PodGroup{}},
		// They are there with a feature gate, at release 1.37 and later.
		Optional:     []client.Object{&schedulingv1beta1.Workload{}, &schedulingv1beta1.PodGroup{}},
		ReleaseGates: []string{groupsGate},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("batch", []string{"jobs/status"}, []string{"update"}),
			// To create pods with blockOwnerDeletion.
			controller.Can("batch", []string{"jobs/finalizers"}, []string{"update"}),
			controller.Can("", []string{"pods"}, []string{"create", "delete", "patch"}),
			controller.Can("scheduling.k8s.io", []string{"workloads", "podgroups"}, []string{"create", "patch"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many jobs are synced at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-job-syncs"

// component is the source of the events.
const component = "job-controller"

type options struct {
	concurrent int
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.ByController(&corev1.Pod{}), jobsBySelector()); err != nil {
		return err
	}
	kind, err := env.Client.GroupVersionKindFor(&batchv1.Job{})
	if err != nil {
		return err
	}
	recorder := env.Recorder(component)
	groups, err := newGroups(ctx, env, kind, recorder)
	if err != nil {
		return err
	}
	r := &reconciler{
		client:  env.Client,
		live:    env.Live,
		pods:    pods.Control{Client: env.Client, Recorder: recorder},
		kind:    kind,
		store:   newStore(env.Clock.Now),
		metrics: newMetrics(),
		groups:  groups,
	}
	w := watches{cache: env.Manager.GetCache(), kind: kind, store: r.store}
	if err := controller.Run(env, controller.Options{Name: "job", Workers: o.concurrent}, r, append(groups.watches(w), w.jobs(), w.pods())...); err != nil {
		return err
	}
	orphanReconciler := &orphans{client: env.Client, live: env.Live}
	return controller.Run(env, controller.Options{Name: "job-orphans", Workers: o.concurrent}, orphanReconciler, w.orphaningJobs(), w.orphanedPods())
}
