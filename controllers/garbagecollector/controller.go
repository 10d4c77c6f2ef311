// Package garbagecollector owns the garbage collector: it deletes objects whose
// owners are gone, and implements foreground deletion and orphaning of dependents.
//
// The graph of owners and dependents decides: see package graph. Around it,
// monitors (monitors.go) watch the metadata of every kind that can be listed, watched
// and deleted, and the reconciler (reconcile.go) executes the graph's actions. Only
// the graph stores objects.
package garbagecollector

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"svc.dev/svc/controllers/controller"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{enabled: true, concurrent: 20}
	return controller.Controller{
		Name:       "garbagecollector",
		Aliases:    []string{"garbage-collector-controller"},
		Standalone: true,
		Permissions: []rbacv1.PolicyRule{
			controller.Can("*", []string{"*"}, []string{"get", "list", "watch", "patch", "delete"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&o.enabled, "enable-garbage-collector", o.enabled, "Collect garbage. Must be the same as the API server's flag of this name.")
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many objects are synced at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-gc-syncs"

type options struct {
	enabled    bool
	concurrent int
}

func (o *options) setup(_ context.Context, env *controller.Env) error {
	if !o.enabled {
		return nil
	}
	ignored, err := ignoredKinds(env.Manager.GetScheme())
	if err != nil {
		return err
	}
	r := newReconciler(env.Metadata, env.Recorder("garbage-collector-controller"))
	if err := env.Manager.Add(manager.RunnableFunc(newMonitors(r, env.Discovery, env.Clock, ignored).run)); err != nil {
		return err
	}
	return controller.Run(env, controller.Options{
		Name: "garbagecollector", Workers: o.concurrent,
		MinBackoff: minBackoff, MaxBackoff: maxBackoff, NamespacesInTurn: true,
	}, r, r.trigger.Watch())
}

// The backoff of an action is longer than that of other controllers. An owner of a
// kind that is not watched is looked up with this backoff for as long as it exists.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 5 * time.Minute
)

// ignoredKinds are not watched: their objects have no owners and no dependents, and
// change often.
func ignoredKinds(scheme *runtime.Scheme) (map[schema.GroupKind]bool, error) {
	ignored := map[schema.GroupKind]bool{}
	for _, obj := range []runtime.Object{&corev1.Event{}, &eventsv1.Event{}} {
		gvk, err := apiutil.GVKForObject(obj, scheme)
		if err != nil {
			return nil, fmt.Errorf("garbage collector: %T: %w", obj, err)
		}
		ignored[gvk.GroupKind()] = true
	}
	return ignored, nil
}
