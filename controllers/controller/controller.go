// Package controller says what a controller is: one declaration, which the
// folder of the controller makes and the table in package controllers lists.
//
// A controller is a reconciler (read, decide, write) around a pure decision. It
// is level-based: it looks at what is, not at what has happened. It may be
// stopped at any line and run again, and it may run twice at the same time for
// a moment; what it does then is still right.
package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Controller is the declaration of a controller.
type Controller struct {
	// Name is its name in --controllers, in logs and in metrics.
	Name string
	// Aliases are its other names in --controllers: those that
	// kube-controller-manager gives it.
	Aliases []string
	// OnDemand controllers run only when --controllers names them; "*" does not.
	OnDemand bool

	// Reads are the kinds that it watches, one empty object of each. It starts
	// when the API server serves all of them.
	Reads []client.Object
	// Permissions are what it may do besides reading Reads and recording events,
	// with the canonical names of API groups. It is granted nothing else.
	Permissions []rbacv1.PolicyRule

	// Flags adds its flags, named as those of kube-controller-manager, and
	// Validate returns what is wrong with their values, one error for each flag.
	// Both are nil for a controller without flags.
	Flags    func(fs *pflag.FlagSet)
	Validate func() []error

	// Setup adds it to env.Manager. An error stops the whole manager; it means
	// a mistake in the program.
	Setup func(ctx context.Context, env *Env) error
}

// AtLeastOne checks the value of a flag that counts something.
func AtLeastOne(flag string, value int) []error {
	if value < 1 {
		return []error{fmt.Errorf("--%s: %d must be at least 1", flag, value)}
	}
	return nil
}

// NotNegative checks the value of a flag that is a time.
func NotNegative(flag string, value time.Duration) []error {
	if value < 0 {
		return []error{fmt.Errorf("--%s: %s must not be negative", flag, value)}
	}
	return nil
}

// Can is the right to use verbs on resources of one API group. A subresource
// is written as resource/subresource; group "*" and resource "*" mean all.
func Can(group string, resources, verbs []string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}
