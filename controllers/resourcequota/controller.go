// Package resourcequota writes the usage of ResourceQuotas to their status.
package resourcequota

import (
	"context"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/devices"
	"svc.dev/svc/apis/quota"
	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5, resync: 5 * time.Minute}
	return controller.Controller{
		Name:    "resourcequota",
		Aliases: []string{"resourcequota-controller"},
		Reads: []client.Object{
			&corev1.ResourceQuota{}, &corev1.Pod{}, &corev1.Service{}, &corev1.PersistentVolumeClaim{}, &resourcev1.ResourceClaim{}, &resourcev1.DeviceClass{},
		},
		// Releases since 1.34 have them.
		Optional:     []client.Object{&resourcev1.ResourceClaim{}, &resourcev1.DeviceClass{}},
		ReleaseGates: []string{devices.ExtendedResourcesGate},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"resourcequotas/status"}, []string{"update"}),
			// A quota may count the objects of any kind.
			controller.Can("*", []string{"*"}, []string{"list", "watch"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many quotas are synced at the same time.")
			fs.DurationVar(&o.resync, resyncFlag, o.resync, "How often a quota is calculated although nothing that it limits has changed; 0 is never.")
		},
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const (
	concurrentFlag = "concurrent-resource-quota-syncs"
	resyncFlag     = "resource-quota-sync-period"
)

const (
	// batchPeriod is how long changes in a namespace are collected, because a sync
	// reads all of the namespace's objects.
	batchPeriod = 200 * time.Millisecond
	// unservedResync is the resync period of a quota that counts a resource that is
	// not served.
	unservedResync = 30 * time.Second
	// recount is how soon a quota is calculated again after its usage was lowered: the
	// caches may not have had an object yet that admission had counted.
	recount = 5 * time.Second
	// freshness is the maximum age of a discovery result by which a resource is not
	// served.
	freshness = time.Second
)

type options struct {
	concurrent int
	resync     time.Duration
}

func (o *options) validate() []error {
	return append(controller.AtLeastOne(concurrentFlag, o.concurrent), controller.NotNegative(resyncFlag, o.resync)...)
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	core, err := apiutil.GVKForObject(&corev1.Pod{}, env.Manager.GetScheme())
	if err != nil {
		return err
	}
	trigger := &controller.Trigger[reconcile.Request]{}
	r := &reconciler{
		client:    env.Client,
		discovery: env.Discovery,
		counters:  newCounters(ctx, env.Metadata, trigger.Enqueue),
		core:      core.Group,
		resync:    o.resync,
		now:       env.Clock.Now,
	}
	if err := env.Manager.Add(manager.RunnableFunc(r.counters.wait)); err != nil {
		return err
	}
	m := measured{reader: env.Manager.GetCache(), evaluators: quota.Evaluators(quota.Lists{}, env.Clock.Now)}
	watches := []controller.Watch[reconcile.Request]{}
	if r.claims, err = env.Served(&resourcev1.ResourceClaim{}); err != nil {
		return err
	}
	if r.claims {
		if r.extended, err = env.On(ctx, devices.ExtendedResourcesGate); err != nil {
			return err
		}
		m.evaluators = append(m.evaluators, quota.ResourceClaims(nil, r.devices(ctx), env.Clock.Now))
		watches = append(watches, m.watch(&resourcev1.ResourceClaim{}, "resourceclaims").Batched(batchPeriod))
	}
	return controller.Run(env, controller.Options{Name: "resourcequota", Workers: o.concurrent}, r, append(watches,
		controller.For(&corev1.ResourceQuota{}, predicate.Funcs{UpdateFunc: respecified}),
		m.watch(&corev1.Pod{}, "pods").Batched(batchPeriod),
		m.watch(&corev1.Service{}, "services").Batched(batchPeriod),
		m.watch(&corev1.PersistentVolumeClaim{}, "persistentvolumeclaims").Batched(batchPeriod),
		trigger.Watch().Batched(batchPeriod))...)
}
