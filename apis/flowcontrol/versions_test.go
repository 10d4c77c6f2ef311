package flowcontrol

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta1 "k8s.io/api/flowcontrol/v1beta1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"sigs.k8s.io/randfill"

	"svc.dev/svc/apis/resource"
)

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{flowcontrolv1.AddToScheme, flowcontrolv1beta3.AddToScheme, flowcontrolv1beta2.AddToScheme, flowcontrolv1beta1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range Kinds() {
		if err := d.Kind().AddToScheme(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// roundTrip converts obj to an empty object of another version and back.
func roundTrip(t *testing.T, s *runtime.Scheme, obj, through, back runtime.Object) {
	t.Helper()
	if err := s.Convert(obj, through, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Convert(through, back, nil); err != nil {
		t.Fatal(err)
	}
	if !apiequality.Semantic.DeepEqual(obj, back) {
		t.Errorf("lost on the way through %T:\n%s", through, diff.Diff(obj, back))
	}
}

// fill fills an object from a seed. Every pointer is set every time (withNils
// false) or now and then, and the mark of zero shares never is: clients do not
// set it beside shares that are not zero.
func fill(obj runtime.Object, seed int64, withNils bool) {
	nils := 0.0
	if withNils {
		nils = 0.3
	}
	randfill.NewWithSeed(seed).NilChance(nils).NumElements(1, 3).Funcs(
		func(t *metav1.TypeMeta, _ randfill.Continue) {},
		func(t *metav1.FieldsV1, _ randfill.Continue) {},
	).Fill(obj)
}

// FuzzHub: what is stored survives a client that reads and writes it in an
// older version.
func FuzzHub(f *testing.F) {
	for seed := range int64(50) {
		f.Add(seed)
	}
	s := newScheme(f)
	f.Fuzz(func(t *testing.T, seed int64) {
		for _, d := range Kinds() {
			k := d.Kind()
			obj := k.New()
			fill(obj, seed, true)
			if pl, ok := obj.(*flowcontrolv1.PriorityLevelConfiguration); ok && pl.Spec.Limited != nil && seed%2 == 0 {
				resource.Fill(&pl.Spec.Limited.NominalConcurrencyShares, 0)
				*pl.Spec.Limited.NominalConcurrencyShares = 0
			}
			k.Default(obj)
			for _, v := range k.Versions {
				roundTrip(t, s, obj, v.New(), k.New())
			}
		}
	})
}

// FuzzVersions: an object of an older version, in which every field is set,
// survives being stored.
func FuzzVersions(f *testing.F) {
	for seed := range int64(50) {
		f.Add(seed)
	}
	s := newScheme(f)
	f.Fuzz(func(t *testing.T, seed int64) {
		for _, d := range Kinds() {
			k := d.Kind()
			for _, v := range k.Versions {
				obj := v.New()
				fill(obj, seed, false)
				roundTrip(t, s, obj, k.New(), v.New())
			}
		}
	})
}

func TestZeroSharesInVersions(t *testing.T) {
	s := newScheme(t)
	level := func(shares int32, annotations map[string]string) *flowcontrolv1beta3.PriorityLevelConfiguration {
		return &flowcontrolv1beta3.PriorityLevelConfiguration{
			ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
			Spec: flowcontrolv1beta3.PriorityLevelConfigurationSpec{
				Type:    flowcontrolv1beta3.PriorityLevelEnablementLimited,
				Limited: &flowcontrolv1beta3.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: shares},
			},
		}
	}
	for _, test := range []struct {
		rule string
		in   *flowcontrolv1beta3.PriorityLevelConfiguration
		want int32
	}{
		{"shares that are set stay", level(7, nil), 7},
		{"zero is unset and becomes the default", level(0, nil), 30},
		{"zero with the mark is zero", level(0, map[string]string{zeroMark: ""}), 0},
		{"the mark means nothing beside other shares", level(7, map[string]string{zeroMark: ""}), 7},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var hub flowcontrolv1.PriorityLevelConfiguration
			if err := s.Convert(test.in, &hub, nil); err != nil {
				t.Fatal(err)
			}
			if got := *hub.Spec.Limited.NominalConcurrencyShares; got != test.want {
				t.Errorf("hub has %d shares, want %d", got, test.want)
			}
			if _, ok := hub.Annotations[zeroMark]; ok {
				t.Error("the mark reached the hub")
			}
			var beta2 flowcontrolv1beta2.PriorityLevelConfiguration
			if err := s.Convert(&hub, &beta2, nil); err != nil {
				t.Fatal(err)
			}
			if got := beta2.Spec.Limited.AssuredConcurrencyShares; got != test.want {
				t.Errorf("v1beta2 has %d shares, want %d", got, test.want)
			}
			if _, ok := beta2.Annotations[zeroMark]; ok != (test.want == 0) {
				t.Errorf("marked in v1beta2: %v", ok)
			}
		})
	}
}

func TestConversionLeavesItsInputAlone(t *testing.T) {
	s := newScheme(t)
	zero := int32(0)
	hub := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &zero},
		},
	}
	before := hub.DeepCopy()
	if err := s.Convert(hub, &flowcontrolv1beta3.PriorityLevelConfiguration{}, nil); err != nil {
		t.Fatal(err)
	}
	if !apiequality.Semantic.DeepEqual(hub, before) {
		t.Errorf("changed:\n%s", diff.Diff(before, hub))
	}
}
