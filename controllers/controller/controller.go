// Package controller defines what a controller is: a declaration, and a
// reconciler with its watches.
//
// A reconciler reads, decides with a pure function, and writes. It is
// level-based: it acts on the present state, not on events. It must be correct
// if it is killed at any line and started again, and if two instances run at the
// same time for a moment.
package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Controller is the declaration of a controller.
type Controller struct {
	// Name is its name in --controllers, in logs and in metrics.
	Name string
	// Aliases are further names in --controllers: those of
	// kube-controller-manager.
	Aliases []string
	// OnDemand controllers run only if --controllers names them; "*" excludes them.
	OnDemand bool
	// Gate, unless empty, is the feature gate that kube-controller-manager has for it: "*"
	// includes an OnDemand controller if the gate is on, and another one unless the gate has
	// been set to false.
	Gate string
	// FurtherGates are the feature gates about which it asks Env.Gate.
	FurtherGates []string
	// ReleaseGates are those about which it asks Env.On: it is set up once the release of the
	// API server is known.
	ReleaseGates []string
	// Standalone controllers do work that the host of a fleet does for it: behind a
	// host they run only if --controllers names them.
	Standalone bool

	// Reads are the kinds that it watches, one empty object of each. It is set up
	// once the API server serves all of them.
	Reads []client.Object
	// Older are earlier versions of kinds in Reads: the API server may serve one of them
	// instead.
	Older []client.Object
	// Newer controllers read kinds that releases of Kubernetes after 1.28 have added. At
	// an API server of an older release they wait, without a message in the log.
	Newer bool
	// Optional are those of Reads without which it works, too: they do not delay its
	// setup. Env.Served reports whether they are there.
	Optional []client.Object
	// Selectors limit which objects of kinds in Reads it needs. The shared cache
	// holds no others, unless another controller reads the kind otherwise.
	Selectors []Selector
	// Permissions are what it may do besides reading Reads and recording events,
	// with the canonical names of API groups. It is granted nothing else.
	Permissions []rbacv1.PolicyRule

	// Flags adds its flags, which have the names of kube-controller-manager's, and
	// Validate returns one error for each flag that is invalid. Both are nil for a
	// controller without flags.
	Flags    func(fs *pflag.FlagSet)
	Validate func() []error

	// Setup adds its reconcilers to env.Manager; see Run. An error stops the
	// manager: it is a programming error.
	Setup func(ctx context.Context, env *Env) error
}

// Selector is a field selector for the objects of a kind.
type Selector struct {
	Object client.Object
	Fields fields.Selector
}

// AtLeastOne validates a flag whose value must be 1 or more.
func AtLeastOne(flag string, value int) []error {
	if value < 1 {
		return []error{fmt.Errorf("--%s: %d must be at least 1", flag, value)}
	}
	return nil
}

// NotNegative validates a flag whose value is a duration of 0 or more.
func NotNegative(flag string, value time.Duration) []error {
	if value < 0 {
		return []error{fmt.Errorf("--%s: %s must not be negative", flag, value)}
	}
	return nil
}

// Can returns the rule that allows verbs on resources of one API group. A
// subresource is written as resource/subresource; "*" is every group or resource.
func Can(group string, resources, verbs []string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}
