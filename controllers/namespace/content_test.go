package namespace

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"svc.dev/svc/controllers/discovery"
)

var (
	whole  = []string{"get", "list", "delete", "deletecollection"}
	single = []string{"get", "list", "delete"}
	read   = []string{"get", "list"}

	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// served returns the discovery snapshot of a server with these resources.
func served(resources map[schema.GroupVersionResource][]string) discovery.Snapshot {
	var s discovery.Snapshot
	for gvr, verbs := range resources {
		s.Resources = append(s.Resources, discovery.Resource{GroupVersionResource: gvr, Namespaced: true, Verbs: verbs})
	}
	return s
}

type deleteCase struct {
	name   string
	serves map[schema.GroupVersionResource][]string
	holds  map[schema.GroupVersionResource][]string // names by resource
	fails  map[string]error                         // by verb and resource
	does   []string                                 // writes
	left   map[schema.GroupVersionResource]int
	failed []string
}

func TestDelete(t *testing.T) {
	refused := errors.New("refused")
	for _, tc := range []deleteCase{
		{
			name:   "does not delete from a resource without objects",
			serves: map[schema.GroupVersionResource][]string{configMaps: whole},
		},
		{
			name:   "deletes a collection where that is served",
			serves: map[schema.GroupVersionResource][]string{configMaps: whole},
			holds:  map[schema.GroupVersionResource][]string{configMaps: {"a", "b"}},
			does:   []string{"delete-collection configmaps"},
		},
		{
			name:   "deletes objects one by one where it is not",
			serves: map[schema.GroupVersionResource][]string{configMaps: single},
			holds:  map[schema.GroupVersionResource][]string{configMaps: {"a", "b"}},
			does:   []string{"delete configmaps a", "delete configmaps b"},
		},
		{
			name:   "ignores resources that cannot be deleted",
			serves: map[schema.GroupVersionResource][]string{configMaps: read},
			holds:  map[schema.GroupVersionResource][]string{configMaps: {"a"}},
		},
		{
			name:   "does not delete other resources while pods remain",
			serves: map[schema.GroupVersionResource][]string{configMaps: whole, pods: whole},
			holds:  map[schema.GroupVersionResource][]string{configMaps: {"a"}, pods: {"held"}},
			does:   []string{"delete-collection pods"},
			left:   map[schema.GroupVersionResource]int{pods: 1},
		},
		{
			name:   "does not delete other resources while pods cannot be counted",
			serves: map[schema.GroupVersionResource][]string{configMaps: whole, pods: whole},
			holds:  map[schema.GroupVersionResource][]string{configMaps: {"a"}},
			fails:  map[string]error{"list pods": refused},
			failed: []string{"pods: refused"},
		},
		{
			name:   "continues with the others when one resource fails",
			serves: map[schema.GroupVersionResource][]string{configMaps: whole, jobs: whole},
			holds:  map[schema.GroupVersionResource][]string{configMaps: {"a"}},
			fails:  map[string]error{"list jobs": refused},
			does:   []string{"delete-collection configmaps"},
			failed: []string{"jobs.batch: refused"},
		},
	} {
		t.Run(tc.name, tc.run)
	}
}

// TestDeleteWhatTheServerDoesNotSupport: discovery may have verbs that the server does not.
func TestDeleteWhatTheServerDoesNotSupport(t *testing.T) {
	notFound := apierrors.NewNotFound(configMaps.GroupResource(), "")
	notAllowed := func(verb string) error { return apierrors.NewMethodNotSupported(configMaps.GroupResource(), verb) }
	for _, tc := range []deleteCase{
		{
			name:   "treats a resource that is no longer served as empty",
			serves: map[schema.GroupVersionResource][]string{configMaps: whole},
			fails:  map[string]error{"list configmaps": notFound},
		},
		{
			name:   "treats a resource that cannot be listed as empty",
			serves: map[schema.GroupVersionResource][]string{configMaps: whole},
			fails:  map[string]error{"list configmaps": notAllowed("list")},
		},
		{
			name:   "deletes objects one by one where the server does not find the collection",
			serves: map[schema.GroupVersionResource][]string{configMaps: whole},
			holds:  map[schema.GroupVersionResource][]string{configMaps: {"a", "held"}},
			fails:  map[string]error{"delete-collection configmaps": notFound},
			does:   []string{"delete configmaps a", "delete configmaps held"},
			left:   map[schema.GroupVersionResource]int{configMaps: 1},
		},
		{
			name:   "deletes objects one by one where the server refuses the collection",
			serves: map[schema.GroupVersionResource][]string{configMaps: whole},
			holds:  map[schema.GroupVersionResource][]string{configMaps: {"a"}},
			fails:  map[string]error{"delete-collection configmaps": notAllowed("deletecollection")},
			does:   []string{"delete configmaps a"},
		},
		{
			name:   "counts objects that cannot be deleted",
			serves: map[schema.GroupVersionResource][]string{configMaps: single},
			holds:  map[schema.GroupVersionResource][]string{configMaps: {"a"}},
			fails:  map[string]error{"delete configmaps": notAllowed("delete")},
			left:   map[schema.GroupVersionResource]int{configMaps: 1},
		},
	} {
		t.Run(tc.name, tc.run)
	}
}

func (tc deleteCase) run(t *testing.T) {
	client, did := fakeMetadata(tc.holds, tc.fails)
	left := content{metadata: client}.delete(t.Context(), "ns", served(tc.serves))
	slices.Sort(*did)
	if diff := cmp.Diff(tc.does, *did); diff != "" {
		t.Errorf("writes: %s", diff)
	}
	if diff := cmp.Diff(tc.left, left.resources); diff != "" {
		t.Errorf("left: %s", diff)
	}
	var failed []string
	for _, err := range left.failed {
		failed = append(failed, err.Error())
	}
	if diff := cmp.Diff(tc.failed, failed); diff != "" {
		t.Errorf("failed: %s", diff)
	}
}

// fakeMetadata is a server with objects in the namespace ns. Objects named "held"
// remain when they are deleted. It records the writes.
func fakeMetadata(holds map[schema.GroupVersionResource][]string, fails map[string]error) (*metadatafake.FakeMetadataClient, *[]string) {
	did := new([]string)
	client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		gvr := action.GetResource()
		gone := func(name string) bool { return name != "held" }
		if err := fails[action.GetVerb()+" "+gvr.Resource]; err != nil {
			return true, nil, err
		}
		switch action.GetVerb() {
		case "delete-collection":
			*did = append(*did, "delete-collection "+gvr.Resource)
			holds[gvr] = slices.DeleteFunc(slices.Clone(holds[gvr]), gone)
		case "list":
			list := &metav1.List{}
			for _, name := range holds[gvr] {
				o := object(name)
				o.APIVersion, o.Kind = gvr.GroupVersion().String(), "Any"
				list.Items = append(list.Items, runtime.RawExtension{Object: o})
			}
			return true, list, nil
		case "delete":
			deleted := action.(clienttesting.DeleteAction).GetName()
			*did = append(*did, "delete "+gvr.Resource+" "+deleted)
			holds[gvr] = slices.DeleteFunc(slices.Clone(holds[gvr]), func(name string) bool { return name == deleted && gone(name) })
		}
		return true, nil, nil
	})
	return client, did
}
