// Package namespace owns the controller that deletes the content of terminating
// namespaces and finalizes them.
//
// A terminating namespace has the finalizer "kubernetes" in its spec. The
// controller deletes everything in the namespace, reports in the namespace's
// conditions what remains and why, and removes the finalizer when nothing does.
// API servers reject new objects in terminating namespaces, but a request that
// was admitted before may still be in flight: the finalizer stays for a grace
// period.
package namespace

import (
	"context"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 10, grace: 5 * time.Second}
	all := []string{"*"}
	return controller.Controller{
		Name:       "namespace",
		Aliases:    []string{"namespace-controller"},
		Standalone: true,
		Reads:      []client.Object{&corev1.Namespace{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"namespaces/finalize", "namespaces/status"}, []string{"update"}),
			controller.Can("*", all, []string{"list", "delete", "deletecollection"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many namespaces are synced at the same time.")
			fs.DurationVar(&o.grace, GraceFlag, o.grace, "The minimum time between the deletion of a namespace and its finalization, for requests in flight at other API servers. \"svc up\" with an embedded etcd, which no other API server uses, sets 500ms.")
		},
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-namespace-syncs"

// GraceFlag can be lowered by a program that runs the only API server.
const GraceFlag = "namespace-deletion-grace"

type options struct {
	concurrent int
	grace      time.Duration
}

func (o *options) validate() []error {
	return append(controller.AtLeastOne(concurrentFlag, o.concurrent), controller.NotNegative(GraceFlag, o.grace)...)
}

func (o *options) setup(_ context.Context, env *controller.Env) error {
	pods, err := apiutil.GVKForObject(&corev1.Pod{}, env.Manager.GetScheme())
	if err != nil {
		return err
	}
	r := &reconciler{client: env.Client, live: env.Live, content: content{env.Metadata, env.Discovery, pods.Group}, grace: o.grace, now: env.Clock.Now}
	return controller.Run(env, controller.Options{Name: "namespace", Workers: o.concurrent}, r, controller.For(&corev1.Namespace{}, predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return e.Object.GetDeletionTimestamp() != nil },
		// The controller's own writes do not trigger a sync: it requeues the
		// namespace itself.
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectNew.GetDeletionTimestamp() != nil &&
				(e.ObjectOld.GetDeletionTimestamp() == nil || e.ObjectOld.GetUID() != e.ObjectNew.GetUID())
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}))
}
