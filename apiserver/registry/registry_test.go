package registry_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry"
	"svc.dev/svc/apiserver/registry/registrytest"
	"svc.dev/svc/apiserver/storage"
)

// expectNoRegistry expects an error with a text for the declarations.
func expectNoRegistry(t *testing.T, text string, declarations ...resource.Declaration) {
	t.Helper()
	var kinds []*resource.Kind
	for _, d := range declarations {
		kinds = append(kinds, d.Kind())
	}
	scheme, err := apis.NewScheme(kinds)
	if err != nil {
		t.Fatal(err)
	}
	backend, err := storage.Open(storage.Config{Servers: []string{"unix:///nowhere"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Close() })
	codec, versioner := storage.KindCodec(scheme, kinds)
	r := registry.New()
	err = r.Install(kinds, scheme, backend.RESTOptions(codec, versioner), &resource.Env{Objects: r.Objects})
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want an error with %q", err, text)
	}
}

func TestAKindThatIsDeclaredTwiceIsRefusedAtTheStart(t *testing.T) {
	expectNoRegistry(t, "deployments.apps is declared twice", set(), set())
}

func TestAKindWithoutATypeOfListsIsRefusedAtTheStart(t *testing.T) {
	expectNoRegistry(t, "rangeallocations: the package of its Go type has no RangeAllocationList", resource.Type[*corev1.RangeAllocation]{Name: "rangeallocations", Namespaced: true})
}

func TestAWatchFieldThatIsNotAFieldIsRefusedAtTheStart(t *testing.T) {
	d := set()
	d.WatchField = "spec.nodename"
	expectNoRegistry(t, `WatchField "spec.nodename"`, d)
}

func TestHooksHaveAccessToStoredKindsOnly(t *testing.T) {
	s := registrytest.Start(t, set(), resource.Virtual[*corev1.Binding]{Name: "bindings", Namespaced: true})
	if s.Env.Objects(schema.GroupResource{Group: "apps", Resource: "deployments"}) == nil {
		t.Error("no objects of a stored kind")
	}
	for _, gr := range []schema.GroupResource{{Resource: "bindings"}, {Resource: "deployments"}, {Group: "apps", Resource: "none"}} {
		if s.Env.Objects(gr) != nil {
			t.Errorf("there are objects of %s", gr)
		}
	}
}

func TestEveryDeclaredKindHasStorage(t *testing.T) {
	var declarations []resource.Declaration
	for _, k := range apis.Kinds() {
		declarations = append(declarations, declared{k})
	}
	s := registrytest.Start(t, declarations...)
	for i, res := range s.Registry.Resources {
		kind := s.Kinds[i]
		want := 1 + len(kind.Views) + len(kind.Actions) + len(kind.Connects)
		if kind.Status {
			want++
		}
		if kind.Scale != nil {
			want++
		}
		if res.Kind != kind || len(res.Storage) != want {
			t.Errorf("%s has %d of %d storages", kind.Resource(), len(res.Storage), want)
		}
	}
}

// declared is a kind as its own declaration.
type declared struct{ kind *resource.Kind }

func (d declared) Kind() *resource.Kind { return d.kind }
