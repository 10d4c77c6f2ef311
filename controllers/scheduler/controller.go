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
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/apis/devices"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/devicetaints"
	"svc.dev/svc/controllers/scheduler/configfile"
	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/controllers/versions"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{name: corev1.DefaultSchedulerName}
	return controller.Controller{
		Name:    "scheduler",
		Aliases: []string{"kube-scheduler"},
		Reads:   reads(),

		FurtherGates: []string{devicetaints.RulesGate, volumesGate},
		ReleaseGates: append(profileGates(), groupsGate, expectationGate),
		// Releases before 1.24 do not have it; drivers' capacity is not considered then.
		// Releases since 1.34 have the kinds of resource claims, and since 1.37 that of groups.
		Optional: []client.Object{&storagev1.CSIStorageCapacity{}, &resourcev1.ResourceClaim{}, &resourcev1.DeviceClass{}, &resourcev1.ResourceSlice{}, &resourcev1.DeviceTaintRule{}, &schedulingv1beta1.PodGroup{}},
		Older:    versions.Objects(devicetaints.Rules[1:]),
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"pods/binding"}, []string{"create"}),
			controller.Can("", []string{"pods"}, []string{"delete"}),
			controller.Can("", []string{"pods/status", "persistentvolumes", "persistentvolumeclaims"}, []string{"patch"}),
			// The last one is what an API server of 1.36 and later asks for.
			controller.Can("resource.k8s.io", []string{"resourceclaims", "resourceclaims/status", "resourceclaims/binding"}, []string{"patch"}),
			// Those for extended resources.
			controller.Can("resource.k8s.io", []string{"resourceclaims"}, []string{"create", "delete"}),
			controller.Can("scheduling.k8s.io", []string{"podgroups/status"}, []string{"patch"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.name, nameFlag, o.name, "The spec.schedulerName of the pods that are given a node. Other pods are left to other schedulers.")
			fs.StringVar(&o.file, fileFlag, o.file, "File with a KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1: profiles, their plugins with weights and arguments, and extenders. Its profiles take the place of --"+nameFlag+".")
		},
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const (
	nameFlag = "scheduler-name"
	fileFlag = "scheduler-config"

	// volumesGate lets nodes be scored by the volumes that a pod's claims get there, and
	// capacityGate, which follows it at 1.33, by the capacity for new volumes, too.
	volumesGate  = "VolumeCapacityPriority"
	capacityGate = "StorageCapacityScoring"

	// deviceConditionsGate lets pods wait for the binding conditions of devices, which are in
	// what the gate deviceStatusGate adds to resource claims.
	deviceConditionsGate = "DRADeviceBindingConditions"
	deviceStatusGate     = "DRAResourceClaimDeviceStatus"

	// searchGate limits the time of searches for devices, and fractionsGate lets the capacity of
	// devices be requested in fractions.
	searchGate    = "DRASchedulerFilterTimeout"
	fractionsGate = "DRAFractionalCapacityRange"

	// expectationGate names the node of a pod in status.nominatedNodeName while what the pod needs
	// there is being prepared.
	expectationGate = "NominatedNodeNameForExpectation"
)

type options struct {
	name, file string
}

func (o *options) validate() []error {
	_, errs := o.config()
	return errs
}

// config returns the configuration that the flags choose.
func (o *options) config() (*configfile.Config, []error) {
	switch {
	case o.file != "" && o.name != corev1.DefaultSchedulerName:
		return nil, []error{fmt.Errorf("--%s: set schedulerName in the profiles of --%s instead", nameFlag, fileFlag)}
	case o.file == "" && o.name == "":
		return nil, []error{fmt.Errorf("--%s: must not be empty", nameFlag)}
	case o.file == "":
		return configfile.Default(o.name), nil
	}
	config, errs := configfile.Read(o.file)
	for i := range errs {
		errs[i] = fmt.Errorf("--%s: %w", fileFlag, errs[i])
	}
	return config, errs
}

// scoreVolumes lets profiles score nodes by volumes, and by capacity if that is on, or rejects
// those that would without the feature gates.
func scoreVolumes(profiles []*decision.Profile, volumes, capacity bool) error {
	for _, p := range profiles {
		p.ScoreCapacity = capacity
		switch {
		case p.VolumeShape != nil && !volumes && !capacity:
			return fmt.Errorf("--%s: profile %s: the argument shape of VolumeBinding needs --feature-gates=%s=true, at release 1.33 and later --feature-gates=%s=true, which is on by default at 1.37",
				fileFlag, p.SchedulerName, volumesGate, capacityGate)
		case p.VolumeShape != nil:
		case capacity:
			p.VolumeShape = decision.DefaultCapacityShape()
		case volumes:
			p.VolumeShape = decision.DefaultVolumeShape()
		}
	}
	return nil
}

// limitSearches limits the time of searches for devices, or rejects profiles that do so without the
// feature gate.
func limitSearches(profiles []*decision.Profile, on bool) error {
	for _, p := range profiles {
		switch {
		case !on && p.DeviceSearchTimeout != nil:
			return fmt.Errorf("--%s: profile %s: the argument filterTimeout of DynamicResources needs the feature gate %s, which is on by default at release 1.34 and later",
				fileFlag, p.SchedulerName, searchGate)
		case on && p.DeviceSearchTimeout == nil:
			p.DeviceSearchTimeout = ptr.To(decision.DefaultDeviceSearchTimeout)
		}
	}
	return nil
}

// awaitDevices lets the pods of profiles wait for the binding conditions of devices, or rejects
// profiles that set how long without the feature gates.
func awaitDevices(profiles []*decision.Profile, on bool) error {
	for _, p := range profiles {
		switch {
		case !on && p.DeviceBindTimeout != 0:
			return fmt.Errorf("--%s: profile %s: the argument bindingTimeout of DynamicResources needs the feature gates %s and %s, which are on by default at release 1.36 and later",
				fileFlag, p.SchedulerName, deviceConditionsGate, deviceStatusGate)
		case on && p.DeviceBindTimeout == 0:
			p.DeviceBindTimeout = decision.DefaultDeviceBindTimeout
		}
	}
	return nil
}

// profileGates returns the feature gates that change the profiles, and are on by default at some
// releases.
func profileGates() []string {
	return []string{decision.DeclaredFeatures, deviceConditionsGate, deviceStatusGate, devices.ExtendedResourcesGate, capacityGate, searchGate, fractionsGate}
}

// applyGates changes the profiles as the feature gates say, or rejects them.
func applyGates(ctx context.Context, env *controller.Env, config *configfile.Config) error {
	on := map[string]bool{}
	for _, gate := range profileGates() {
		var err error
		if on[gate], err = env.On(ctx, gate); err != nil {
			return err
		}
	}
	if !on[decision.DeclaredFeatures] {
		config.Disable(decision.DeclaredFeatures)
	}
	for _, p := range config.Profiles {
		p.ExtendedResources, p.FractionalCapacity = on[devices.ExtendedResourcesGate], on[fractionsGate]
	}
	volumes, _ := env.Gate(volumesGate)
	return errors.Join(
		scoreVolumes(config.Profiles, volumes, on[capacityGate]),
		limitSearches(config.Profiles, on[searchGate]),
		awaitDevices(config.Profiles, on[deviceConditionsGate] && on[deviceStatusGate]),
	)
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	config, errs := o.config()
	if len(errs) > 0 {
		return errors.Join(errs...) // the file has changed since it was validated
	}
	if err := applyGates(ctx, env, config); err != nil {
		return err
	}
	s := &scheduler{
		config: config,
		client: env.Client,
		plain:  env.Live,
		live:   env.Live,
		clock:  env.Clock,
		scheme: env.Manager.GetScheme(),

		conditions: newConditionReconciler(env.Client, env.Clock.Now),
	}
	var err error
	if s.expects, err = env.On(ctx, expectationGate); err != nil {
		return err
	}
	watched, err := servedKinds(env.Served, env.Gate)
	if err != nil {
		return err
	}
	if on, err := groupsServed(ctx, env); err != nil {
		return err
	} else if on {
		s.groups = newGroupReconciler(env.Client, env.Clock.Now)
		watched = append(watched, groups())
		if err := controller.Run(env, controller.Options{Name: "scheduler-groups", Workers: conditionWorkers}, s.groups, s.groups.trigger.Watch()); err != nil {
			return err
		}
	}
	for _, k := range watched {
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
