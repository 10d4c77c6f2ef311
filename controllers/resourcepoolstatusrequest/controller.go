// Package resourcepoolstatusrequest answers each ResourcePoolStatusRequest once, with the state
// of a driver's pools of devices, and deletes old requests (KEP-5677).
package resourcepoolstatusrequest

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/devicetaints"
	"svc.dev/svc/controllers/versions"
)

const (
	name    = "resourcepoolstatusrequest"
	workers = 1
)

// New declares the controller.
func New() controller.Controller {
	rules := versions.Objects(devicetaints.Rules)
	return controller.Controller{
		Name:     name,
		Aliases:  []string{"resourcepoolstatusrequest-controller"},
		OnDemand: true,
		Gate:     "DRAResourcePoolStatus",
		Newer:    true,

		FurtherGates: []string{devicetaints.RulesGate},

		Reads: []client.Object{&resourcev1alpha3.ResourcePoolStatusRequest{}, &resourcev1.ResourceSlice{}, &resourcev1.ResourceClaim{}, rules[0]},
		// Without rules, the taints of slices count.
		Optional: rules[:1],
		Older:    rules[1:],
		Permissions: []rbacv1.PolicyRule{
			controller.Can(resourcev1alpha3.GroupName, []string{"resourcepoolstatusrequests"}, []string{"delete"}),
			controller.Can(resourcev1alpha3.GroupName, []string{"resourcepoolstatusrequests/status"}, []string{"update"}),
		},
		Setup: setup,
	}
}

func setup(_ context.Context, env *controller.Env) error {
	r := &reconciler{client: env.Client, now: env.Clock.Now}
	version, served, err := devicetaints.ServedRules(env.Served, env.Gate)
	if err != nil {
		return err
	}
	if served {
		r.rules = &versions.Client[resourcev1.DeviceTaintRule]{Client: env.Client, Version: version}
	}
	return controller.Run(env, controller.Options{Name: name, Workers: workers}, r, controller.For(&resourcev1alpha3.ResourcePoolStatusRequest{}))
}
