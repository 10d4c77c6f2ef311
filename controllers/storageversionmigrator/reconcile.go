package storageversionmigrator

import (
	"context"
	"fmt"
	"slices"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/discovery"
	"svc.dev/svc/controllers/versions"
	"svc.dev/svc/internal/storageversion"
)

// reconciler reads migrations and the objects of their resources. It is the only writer of
// the statuses of migrations: a process that starts goes on from these, and an object that
// is in its storage version already is not written again.
type reconciler struct {
	migrations  versions.Client[migration]
	objects     metadata.Interface
	definitions definitions
	discovery   *discovery.Discovery
	clock       clock.PassiveClock
}

// Reconcile makes the migrations of a resource advance by one step; the write of a status
// leads to the next one.
func (r *reconciler) Reconcile(ctx context.Context, resource metav1.GroupResource) (reconcile.Result, error) {
	all, err := r.migrations.List(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	next := decide(slices.DeleteFunc(all, func(m *migration) bool { return m.Spec.Resource != resource }))
	for _, m := range next.finish {
		if err := r.finish(ctx, m); err != nil {
			return reconcile.Result{}, fmt.Errorf("StorageVersionMigration %s: %w", m.Name, err)
		}
	}
	switch {
	case next.start != nil:
		if err := r.start(ctx, next.start); err != nil {
			return reconcile.Result{}, fmt.Errorf("StorageVersionMigration %s: %w", next.start.Name, err)
		}
	case next.run != nil:
		result, err := r.run(ctx, next.run)
		if err != nil {
			err = fmt.Errorf("StorageVersionMigration %s: %w", next.run.Name, err)
		}
		return result, err
	}
	return reconcile.Result{}, nil
}

// start marks a migration as running, after the definition of its resource.
func (r *reconciler) start(ctx context.Context, m *migration) error {
	if err := r.definitions.begin(ctx, m, r.clock.Now()); err != nil {
		return err
	}
	set(m, storagemigrationv1.MigrationRunning, metav1.ConditionTrue, running, message(0, 0, nil), r.clock.Now())
	return r.write(ctx, m)
}

// finish marks a migration that has ended as no longer running, after the definition of
// its resource.
func (r *reconciler) finish(ctx context.Context, m *migration) error {
	if err := r.definitions.end(ctx, m, is(m, storagemigrationv1.MigrationSucceeded), r.clock.Now()); err != nil {
		return err
	}
	set(m, storagemigrationv1.MigrationRunning, metav1.ConditionFalse, completed, "Migration completed", r.clock.Now())
	return r.write(ctx, m)
}

// write writes the status of a migration.
func (r *reconciler) write(ctx context.Context, m *migration) error {
	return client.IgnoreNotFound(r.migrations.UpdateStatus(ctx, m))
}

// The pauses before it is checked again whether a resource is served, and whether its
// storage version is in use.
const (
	resourcePause = 5 * time.Second
	versionPause  = time.Second
)

// run migrates all objects, and writes how it has ended.
func (r *reconciler) run(ctx context.Context, m *migration) (reconcile.Result, error) {
	gvr, pause, err := r.find(ctx, m)
	if err != nil || pause > 0 || hasEnded(m) {
		return reconcile.Result{RequeueAfter: pause}, err
	}
	if m.Status.ResourceVersion == "" {
		pause, err := r.begin(ctx, m, gvr)
		if err != nil || pause > 0 || hasEnded(m) {
			return reconcile.Result{RequeueAfter: pause}, err
		}
	}
	result, failure := storageversion.Objects{
		Client: r.objects, Resource: gvr, UpTo: m.Status.ResourceVersion, Manager: kubeName, FirstError: true,
	}.Rewrite(ctx)
	if ctx.Err() != nil {
		return reconcile.Result{}, failure // the manager stops
	}
	log := klog.FromContext(ctx)
	now := r.clock.Now()
	switch {
	case failure == nil:
		log.V(2).Info("Migrated all objects of resource", "migration", m.Name, "resource", gvr, "objects", result.Objects, "rewritten", result.Rewritten)
		set(m, storagemigrationv1.MigrationRunning, metav1.ConditionTrue, running, message(0, result.Objects, nil), now)
		set(m, storagemigrationv1.MigrationSucceeded, metav1.ConditionTrue, succeeded, "Migration completed", now)
	case isTransient(failure):
		if set(m, storagemigrationv1.MigrationRunning, metav1.ConditionTrue, running, message(result.Left, result.Objects, failure), now) {
			if err := r.write(ctx, m); err != nil {
				log.V(2).Info("Failed to write status of migration, will retry", "migration", m.Name, "reason", err.Error())
			}
		}
		return reconcile.Result{}, failure
	default:
		log.Error(failure, "Failed to migrate resource", "migration", m.Name, "resource", gvr, "objects", result.Objects, "left", result.Left)
		set(m, storagemigrationv1.MigrationRunning, metav1.ConditionTrue, running, message(result.Left, result.Objects, nil), now)
		set(m, storagemigrationv1.MigrationFailed, metav1.ConditionTrue, failed,
			fmt.Sprintf("%d/%d not yet migrated. migration encountered unhandled error: %v", result.Left, result.Objects, failure), now)
	}
	return reconcile.Result{}, r.write(ctx, m)
}

// fail ends a migration.
func (r *reconciler) fail(ctx context.Context, m *migration, reason string) error {
	set(m, storagemigrationv1.MigrationFailed, metav1.ConditionTrue, failed, reason, r.clock.Now())
	return r.write(ctx, m)
}

// verbs are those that a resource must have to be migrated.
var verbs = []string{"update", "patch", "list"}

// find returns the resource of a migration as it is served. The pause is not 0 if it is
// not, and is to be looked for again; later the migration fails.
func (r *reconciler) find(ctx context.Context, m *migration) (gvr schema.GroupVersionResource, pause time.Duration, err error) {
	wanted := schema.GroupResource(m.Spec.Resource)
	served, err := r.discovery.Since(ctx, r.clock.Now())
	if err != nil {
		return gvr, 0, err
	}
	for _, resource := range served.Resources {
		switch {
		case resource.GroupResource() != wanted:
		case !resource.Can(verbs...):
			return gvr, 0, r.fail(ctx, m, fmt.Sprintf("resource %q does not support discovery operations: %v", resource.GroupVersionResource, verbs))
		default:
			return resource.GroupVersionResource, 0, nil
		}
	}
	for gv, failure := range served.Failed {
		if gv.Group == wanted.Group {
			return gvr, 0, fmt.Errorf("discover %s: %w", gv, failure.Err)
		}
	}
	if wait := waitForResource(m, r.clock.Now()); wait > 0 {
		return gvr, min(wait, resourcePause), nil
	}
	return gvr, 0, r.fail(ctx, m, fmt.Sprintf("resource %q does not exist in discovery", wanted.String()))
}

// begin writes the resource version up to which objects are migrated: later ones are
// stored in the present form. The pause is not 0 if the API server does not do so yet.
func (r *reconciler) begin(ctx context.Context, m *migration, gvr schema.GroupVersionResource) (pause time.Duration, err error) {
	known, err := r.definitions.knowsStorageVersion(ctx, m.Spec.Resource)
	if err != nil {
		return 0, err
	}
	if !known {
		return versionPause, nil
	}
	list, err := r.objects.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("list %s: %w", gvr.GroupResource(), err)
	}
	if _, err := resourceversion.CompareResourceVersion(list.ResourceVersion, list.ResourceVersion); err != nil {
		return 0, r.fail(ctx, m, fmt.Sprintf("latest resourceVersion for %s is not valid: %v", gvr, err))
	}
	m.Status.ResourceVersion = list.ResourceVersion
	return 0, r.migrations.UpdateStatus(ctx, m)
}
