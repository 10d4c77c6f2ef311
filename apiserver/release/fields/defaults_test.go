package fields_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/randfill"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/release/fields"
	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
)

// shown are the fields that a release shows though it does not have them: the hub requires
// them. docs/releases.md names them.
var shown = []string{
	"CertificateSigningRequest spec.signerName", "CertificateSigningRequest status.conditions[].status", "Ingress spec.rules[].http.paths[].pathType",
}

func TestNoReleaseSetsDefaultsOfFieldsThatItLacks(t *testing.T) {
	index := regexp.MustCompile(`\[[^\]]*\]`)
	for minor := int(releases.Oldest); minor < int(releases.Newest); minor++ {
		defaults := newDefaulter(t, minor)
		for _, k := range defaults.kinds {
			if !k.Stored() || len(defaults.served.Versions(k)) == 0 {
				continue
			}
			found := map[string]bool{}
			for seed := range int64(20) {
				for path := range defaults.of(t, k, seed) {
					found[k.Hub.Kind+" "+index.ReplaceAllString(path, "[]")] = true
				}
			}
			for path := range found {
				if !slices.Contains(shown, path) {
					t.Errorf("1.%d has not %s, and sets a default", minor, path)
				}
			}
		}
	}
}

// defaulter sets defaults as a server of a release does.
type defaulter struct {
	kinds  []*resource.Kind
	scheme *runtime.Scheme
	served release.Served
	gated  *fields.Gated
}

func newDefaulter(t *testing.T, minor int) *defaulter {
	t.Helper()
	d := &defaulter{kinds: apis.Kinds()}
	var err error
	if d.served, err = release.NewServed(release.Release{Major: 1, Minor: minor}, nil, d.kinds); err != nil {
		t.Fatal(err)
	}
	r := releases.Release(minor)
	if d.gated, err = fields.NewGated(r, func(gate string) bool { return featuregates.On(r, gate) }); err != nil {
		t.Fatal(err)
	}
	for _, k := range d.kinds {
		if k.Stored() {
			k.Default = d.gated.Default(k.New(), k.Default)
		}
	}
	if d.scheme, err = apis.NewScheme(d.kinds); err != nil {
		t.Fatal(err)
	}
	return d
}

// of returns the fields that the release lacks and that a random object has, when it is
// created without them in the version that the release serves.
func (d *defaulter) of(t *testing.T, k *resource.Kind, seed int64) map[string]any {
	t.Helper()
	version := k.Hub
	if versions := d.served.Versions(k); !slices.Contains(versions, k.Hub) {
		version = versions[0]
	}
	obj, err := d.scheme.New(version)
	if err != nil {
		t.Fatal(err)
	}
	fill(obj, seed)
	lacking := d.served.Fields().Of(version, reflect.TypeOf(obj).Elem())
	lacking.Remove(obj)
	d.scheme.Default(obj)
	stored := d.convert(t, obj, k.Hub)
	d.gated.Drop(stored, nil)
	k.Default(stored)
	return lacking.Values(d.convert(t, stored, version))
}

func (d *defaulter) convert(t *testing.T, obj runtime.Object, to schema.GroupVersionKind) runtime.Object {
	t.Helper()
	into, err := d.scheme.New(to)
	if err == nil && reflect.TypeOf(into) == reflect.TypeOf(obj) {
		return obj
	}
	if err == nil {
		err = d.scheme.Convert(obj, into, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return into
}

// fill fills an object, whose texts are short or empty: most of them have a default then.
func fill(obj runtime.Object, seed int64) {
	randfill.NewWithSeed(seed).NilChance(0.3).NumElements(1, 2).MaxDepth(14).Funcs(
		func(*metav1.TypeMeta, randfill.Continue) {},
		func(*metav1.ObjectMeta, randfill.Continue) {},
		func(f *metav1.FieldsV1, _ randfill.Continue) { *f = *metav1.NewFieldsV1("{}") },
		func(r *runtime.RawExtension, _ randfill.Continue) { r.Raw = []byte("{}") },
		func(q *apiresource.Quantity, _ randfill.Continue) {
			*q = *apiresource.NewQuantity(1, apiresource.DecimalSI)
		},
		func(s *string, c randfill.Continue) { *s = strings.Repeat("x", c.Intn(2)) },
	).Fill(obj)
}
