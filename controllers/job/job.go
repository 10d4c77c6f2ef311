// Package job runs the pods of jobs until enough have succeeded or too many
// have failed, and counts them exactly.
//
// Every pod of a job holds the finalizer batch.kubernetes.io/job-tracking until
// the job's status has counted it (KEP-2307); plan.go says how. The decision is
// pure: census.go looks at the pods, ending.go knows why a job ends, and plan.go
// and replicas.go say what to do. The scripts in testdata show it at work.
package job

import (
	"context"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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
		Reads:   []client.Object{&batchv1.Job{}, &corev1.Pod{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("batch", []string{"jobs/status"}, []string{"update"}),
			// To own pods that keep a job that is deleted from going before them.
			controller.Can("batch", []string{"jobs/finalizers"}, []string{"update"}),
			controller.Can("", []string{"pods"}, []string{"create", "delete", "patch"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many jobs are looked at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-job-syncs"

// component is where the events come from.
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
	r := &reconciler{
		client: env.Client,
		live:   env.Live,
		pods:   pods.Control{Client: env.Client, Recorder: env.Recorder(component)},
		kind:   kind,
		memory: newMemory(env.Clock.Now),
	}
	w := watches{cache: env.Manager.GetCache(), kind: kind, memory: r.memory}
	if err := controller.Run(env, "job", o.concurrent, r, w.jobs(), w.pods()); err != nil {
		return err
	}
	s := &strays{client: env.Client, live: env.Live}
	return controller.Run(env, "job-strays", o.concurrent, s, w.strayJobs(), w.strayPods())
}
