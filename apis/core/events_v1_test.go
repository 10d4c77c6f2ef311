package core

import (
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// FuzzEventVersions converts random events to the other version and back, from
// either: nothing may be lost (document 2, section 9, rule 2).
func FuzzEventVersions(f *testing.F) {
	codecs := serializer.NewCodecFactory(scheme.Scheme)
	for seed := range int64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), codecs)
		var hub, hubAgain corev1.Event
		var v1, v1Again eventsv1.Event
		filler.Fill(&hub)
		hub.TypeMeta = metav1.TypeMeta{}
		if err := eventToV1(&hub, &v1); err != nil {
			t.Fatal(err)
		}
		if err := eventFromV1(&v1, &hubAgain); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(hub, hubAgain); diff != "" {
			t.Errorf("core/v1 to events.k8s.io/v1 and back (-was +is):\n%s", diff)
		}
		v1 = eventsv1.Event{}
		filler.Fill(&v1)
		v1.TypeMeta = metav1.TypeMeta{}
		hub = corev1.Event{}
		if err := eventFromV1(&v1, &hub); err != nil {
			t.Fatal(err)
		}
		if err := eventToV1(&hub, &v1Again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v1, v1Again); diff != "" {
			t.Errorf("events.k8s.io/v1 to core/v1 and back (-was +is):\n%s", diff)
		}
	})
}
