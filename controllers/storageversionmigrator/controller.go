// Package storageversionmigrator stores the objects of resources again, in the storage
// version and with the present encryption, as StorageVersionMigrations ask for (KEP-4192).
package storageversionmigrator

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/versions"
)

const (
	// kubeName is the controller's name in Kubernetes.
	kubeName = "storage-version-migrator-controller"
	workers  = 5
)

// migrations are the versions of the kind; releases 1.35 and 1.36 have the second.
var migrations = []versions.Version[migration]{
	versions.Of[migration](),
	versions.Alike[migration, storagemigrationv1beta1.StorageVersionMigration](),
}

type migration = storagemigrationv1.StorageVersionMigration

// New declares the controller.
func New() controller.Controller {
	kinds := versions.Objects(migrations)
	return controller.Controller{
		Name:    "storageversionmigrator",
		Aliases: []string{kubeName, "svm"},
		Gate:    "StorageVersionMigrator",
		Newer:   true,
		// The host's controller migrates the resources of aggregated API servers, too.
		Standalone: true,
		Reads:      kinds[:1],
		Older:      kinds[1:],
		Permissions: []rbacv1.PolicyRule{
			controller.Can("*", []string{"*"}, []string{"list", "patch"}),
			controller.Can("apiextensions.k8s.io", []string{"customresourcedefinitions"}, []string{"get"}),
			controller.Can("apiextensions.k8s.io", []string{"customresourcedefinitions/status"}, []string{"patch"}),
			controller.Can("storagemigration.k8s.io", []string{"storageversionmigrations/status"}, []string{"update"}),
		},
		Setup: setup,
	}
}

func setup(_ context.Context, env *controller.Env) error {
	version, _, err := versions.Served(migrations, env.Served)
	if err != nil {
		return err
	}
	api, err := discovery.NewDiscoveryClientForConfigAndClient(env.Manager.GetConfig(), env.Manager.GetHTTPClient())
	if err != nil {
		return err
	}
	r := &reconciler{
		migrations: versions.Client[migration]{Client: env.Client, Version: version}, objects: env.Metadata,
		definitions: definitions{env.Live, api}, discovery: env.Discovery, clock: env.Clock,
	}
	resourceOf := func(_ context.Context, obj client.Object) []metav1.GroupResource {
		return []metav1.GroupResource{version.As(obj).Spec.Resource}
	}
	// A message that the reconciler has written must not end the back-off of what it is about.
	decisive := predicate.TypedFuncs[client.Object]{UpdateFunc: func(e event.TypedUpdateEvent[client.Object]) bool {
		before, after := version.As(e.ObjectOld), version.As(e.ObjectNew)
		return before.UID != after.UID || hasEnded(before) != hasEnded(after) ||
			is(before, storagemigrationv1.MigrationRunning) != is(after, storagemigrationv1.MigrationRunning)
	}}
	return controller.Run(env, controller.Options{Name: "storageversionmigrator", Workers: workers}, r, controller.Watch[metav1.GroupResource]{
		Object: version.Object, Handler: handler.TypedEnqueueRequestsFromMapFunc[client.Object](resourceOf),
		Predicates: []predicate.TypedPredicate[client.Object]{decisive},
	})
}
