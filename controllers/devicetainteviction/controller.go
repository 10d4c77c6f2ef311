// Package devicetainteviction evicts pods whose devices have NoExecute taints that their
// claims do not tolerate, or not any longer (KEP-5055).
package devicetainteviction

import (
	"context"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/devicetaints"
	"svc.dev/svc/controllers/eviction"
	"svc.dev/svc/controllers/versions"
)

// kubeName is the controller's name in Kubernetes.
const kubeName = "device-taint-eviction-controller"

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 8}
	rules := versions.Objects(devicetaints.Rules)
	return controller.Controller{
		Name:    "devicetainteviction",
		Aliases: []string{kubeName},
		Gate:    devicetaints.Gate,
		Newer:   true,

		FurtherGates: []string{devicetaints.RulesGate},

		Reads: []client.Object{&corev1.Pod{}, &resourcev1.ResourceClaim{}, &resourcev1.ResourceSlice{}, rules[0]},
		// Taints of slices evict pods of earlier releases, too.
		Optional: rules[:1],
		Older:    rules[1:],
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"pods"}, []string{"delete"}),
			controller.Can("", []string{"pods/status"}, []string{"update"}),
			controller.Can("resource.k8s.io", []string{"devicetaintrules/status"}, []string{"update"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many pods with tainted devices, and how many DeviceTaintRules, are synced at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-device-taint-eviction-syncs"

type options struct{ concurrent int }

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, claimsByPool(), slicesByPool()); err != nil {
		return err
	}
	version, served, err := devicetaints.ServedRules(env.Served, env.Gate)
	if err != nil {
		return err
	}
	reads := reader{client: env.Client}
	if served {
		reads.rules = &versions.Client[resourcev1.DeviceTaintRule]{Client: env.Client, Version: version}
	}
	r := &reconciler{
		reader: reads, now: env.Clock.Now, metrics: newMetrics(),
		evictor:  eviction.New(env.Client, env.Recorder(kubeName), env.Clock.Now, reason),
		statuses: &statusReconciler{reader: reads, now: env.Clock.Now, evicted: map[string]tally{}},
	}
	w := watches{reader: reader{client: env.Manager.GetCache()}, evictor: r.evictor}
	watched := []controller.Watch[reconcile.Request]{w.pods(), w.claims(), w.slices()}
	if served {
		watched = append(watched, w.rules(version))
		err := controller.Run(env, controller.Options{Name: "devicetainteviction-rules", Workers: o.concurrent}, r.statuses,
			controller.For(version.Object, predicate.GenerationChangedPredicate{}), r.statuses.trigger.Watch().Batched(statusPeriod))
		if err != nil {
			return err
		}
	}
	return controller.Run(env, controller.Options{Name: "devicetainteviction", Workers: o.concurrent}, r, watched...)
}

// claimsByPool finds resource claims by the pools of their allocated devices.
func claimsByPool() controller.Index {
	return controller.Index{Name: "device-pool", Object: &resourcev1.ResourceClaim{}, Values: func(obj client.Object) []string {
		allocation := obj.(*resourcev1.ResourceClaim).Status.Allocation
		if allocation == nil {
			return nil
		}
		var pools []string
		for _, r := range allocation.Devices.Results {
			pools = append(pools, pool{r.Driver, r.Pool}.key())
		}
		return pools
	}}
}

// slicesByPool finds resource slices by their pools.
func slicesByPool() controller.Index {
	return controller.Index{Name: "device-pool", Object: &resourcev1.ResourceSlice{}, Values: func(obj client.Object) []string {
		return []string{poolOf(obj.(*resourcev1.ResourceSlice)).key()}
	}}
}

// key returns a text for a pool. The name of a driver has no slashes.
func (p pool) key() string { return p.driver + "/" + p.name }
