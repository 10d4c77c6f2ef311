package storageversionmigrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	hashes "k8s.io/apiserver/pkg/endpoints/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	fakemetadata "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/discovery"
	"svc.dev/svc/controllers/versions"
)

var widgets = metav1.GroupResource{Group: "example.com", Resource: "widgets"}

// cluster is an API server with widgets, which were stored as v1 and are stored as v2 now.
type cluster struct {
	t        *testing.T
	client   client.Client
	objects  *fakemetadata.FakeMetadataClient
	server   *fakediscovery.FakeDiscovery
	clock    *clocktesting.FakeClock
	version  versions.Version[migration]
	patched  []string
	writes   int // how many there were
	killedAt int // the write at which the process is killed; 0 is none
}

var (
	errKilled  = errors.New("killed")
	errRefused = apierrors.NewBadRequest("refused")
)

func newCluster(t *testing.T, version versions.Version[migration], names ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, version: version, clock: clocktesting.NewFakeClock(time.Unix(1000, 0))}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{storagemigrationv1.AddToScheme, storagemigrationv1beta1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", Generation: 2}}
	definition.Spec.Group, definition.Spec.Names = "example.com", apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"}
	definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}, {Name: "v2", Served: true, Storage: true}}
	definition.Status.StoredVersions = []string{"v1", "v2"}
	objects := []client.Object{definition}
	for i, name := range names {
		m := &migration{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(900+int64(i), 0)}}
		m.Spec.Resource = widgets
		objects = append(objects, version.Made(m))
	}
	c.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(definition, version.Object).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, to client.Client, sub string, obj client.Object, options ...client.SubResourceUpdateOption) error {
			if c.killed() {
				return errKilled
			}
			return to.SubResource(sub).Update(ctx, obj, options...)
		},
		SubResourcePatch: func(ctx context.Context, to client.Client, sub string, obj client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if c.killed() {
				return errKilled
			}
			return to.SubResource(sub).Patch(ctx, obj, patch, options...)
		},
	}).Build()
	c.serveWidgets()
	return c
}

// killed counts a write, and reports whether the process is killed before it.
func (c *cluster) killed() bool {
	c.writes++
	return c.killedAt > 0 && c.writes >= c.killedAt
}

func (c *cluster) serveWidgets() {
	scheme := fakemetadata.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		c.t.Fatal(err)
	}
	kind := metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"}
	c.objects = fakemetadata.NewSimpleMetadataClient(scheme)
	c.objects.PrependReactor("list", "widgets", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "50"}}
		for name, version := range map[string]string{"old": "10", "later": "60"} {
			list.Items = append(list.Items, runtime.RawExtension{Object: &metav1.PartialObjectMetadata{TypeMeta: kind, ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: version}}})
		}
		return true, list, nil
	})
	c.objects.PrependReactor("patch", "widgets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if c.killed() {
			return true, nil, errKilled
		}
		name := action.(clienttesting.PatchAction).GetName()
		c.patched = append(c.patched, name)
		return true, &metav1.PartialObjectMetadata{TypeMeta: kind, ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: "70"}}, nil
	})
	resource := metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: []string{"list", "patch", "update"}, StorageVersionHash: hashes.StorageVersionHash("example.com", "v2", "Widget")}
	c.server = &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{resource}},
		{GroupVersion: "example.com/v2", APIResources: []metav1.APIResource{resource}},
	}}}
}

// started is a manager that has just started.
func (c *cluster) started() *reconciler {
	return &reconciler{
		migrations: versions.Client[migration]{Client: c.client, Version: c.version}, objects: c.objects, definitions: definitions{c.client, c.server},
		discovery: discovery.New(c.server, c.clock), clock: c.clock,
	}
}

// reconcile reconciles until nothing more is written.
func (c *cluster) reconcile(r *reconciler, resource metav1.GroupResource) (last reconcile.Result, err error) {
	for before := -1; before != c.writes; {
		before = c.writes
		if last, err = r.Reconcile(c.t.Context(), resource); err != nil {
			return last, err
		}
	}
	return last, nil
}

// conditions returns the conditions of a migration that are true.
func (c *cluster) conditions(name string) string {
	c.t.Helper()
	m, err := versions.Client[migration]{Client: c.client, Version: c.version}.Get(c.t.Context(), client.ObjectKey{Name: name})
	if err != nil {
		c.t.Fatal(err)
	}
	var all []string
	for _, condition := range m.Status.Conditions {
		if condition.Status == metav1.ConditionTrue {
			all = append(all, condition.Type+": "+condition.Message)
		}
	}
	return strings.Join(all, ", ")
}

func (c *cluster) definition() *apiextensionsv1.CustomResourceDefinition {
	c.t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Name: "widgets.example.com"}, d); err != nil {
		c.t.Fatal(err)
	}
	return d
}

func TestAMigrationIsCompletedHoweverOftenTheManagerIsKilled(t *testing.T) {
	for i, version := range migrations {
		for at := 1; ; at++ {
			c := newCluster(t, version, "first", "second")
			c.killedAt = at
			_, err := c.reconcile(c.started(), widgets)
			if err != nil && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			completed := err == nil
			c.killedAt = 0
			if _, err := c.reconcile(c.started(), widgets); err != nil {
				t.Fatalf("version %d, killed at write %d: %v", i, at, err)
			}
			for _, name := range []string{"first", "second"} {
				if got := c.conditions(name); got != "Succeeded: Migration completed" {
					t.Errorf("version %d, killed at write %d: %s: %s", i, at, name, got)
				}
			}
			if d := c.definition(); !slices.Equal(d.Status.StoredVersions, []string{"v2"}) || d.Status.Conditions[0].Status != apiextensionsv1.ConditionFalse {
				t.Errorf("version %d, killed at write %d: status %+v", i, at, d.Status)
			}
			if !slices.Contains(c.patched, "old") || slices.Contains(c.patched, "later") {
				t.Errorf("version %d, killed at write %d: patched %v", i, at, c.patched)
			}
			if completed {
				break
			}
		}
	}
}

func TestAMigrationWaitsUntilTheStorageVersionIsInUse(t *testing.T) {
	c := newCluster(t, migrations[0], "m")
	for _, list := range c.server.Resources {
		list.APIResources[0].StorageVersionHash = hashes.StorageVersionHash("example.com", "v1", "Widget")
	}
	r := c.started()
	if last, err := c.reconcile(r, widgets); err != nil || last.RequeueAfter != versionPause || len(c.patched) > 0 {
		t.Fatalf("%+v, %v, patched %v", last, err, c.patched)
	}
	if got := c.definition().Status.Conditions; len(got) != 1 || got[0].Message != "Migration m is running" {
		t.Errorf("conditions of the definition: %+v", got)
	}
	c.serveWidgets()
	if _, err := c.reconcile(c.started(), widgets); err != nil || len(c.patched) != 1 {
		t.Errorf("%v, patched %v", err, c.patched)
	}
}

func TestAMigrationFailsIfItsResourceIsNotServedForAMinute(t *testing.T) {
	c := newCluster(t, migrations[0], "m")
	c.clock.SetTime(time.Unix(930, 0))
	c.server.Resources = nil
	r := c.started()
	if last, err := c.reconcile(r, widgets); err != nil || last.RequeueAfter != resourcePause {
		t.Fatalf("%+v, %v", last, err)
	}
	c.clock.SetTime(time.Unix(960, 0))
	if _, err := c.reconcile(r, widgets); err != nil {
		t.Fatal(err)
	}
	if got := c.conditions("m"); got != `Failed: resource "widgets.example.com" does not exist in discovery` {
		t.Error(got)
	}
	if d := c.definition(); len(d.Status.StoredVersions) != 2 {
		t.Errorf("stored versions %v", d.Status.StoredVersions)
	}
}

func TestAMigrationFailsWhenAnObjectIsRefused(t *testing.T) {
	c := newCluster(t, migrations[0], "m")
	c.objects.PrependReactor("patch", "widgets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errRefused
	})
	if _, err := c.reconcile(c.started(), widgets); err != nil {
		t.Fatal(err)
	}
	if got, want := c.conditions("m"), fmt.Sprintf("Failed: 1/2 not yet migrated. migration encountered unhandled error: widgets.example.com n/old: %v", errRefused); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
