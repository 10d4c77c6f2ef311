package core

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/resource/resourcetest"
)

// TestTheStorageClassOfAClaimIsSetOnceAndOnlyMovesFromTheAnnotationToTheField has every update of
// the two places of a storage class: the field, and the beta annotation, which prevails. The class
// must not change, as quotas count claims by it.
func TestTheStorageClassOfAClaimIsSetOnceAndOnlyMovesFromTheAnnotationToTheField(t *testing.T) {
	const bound = `{spec: {volumeName: v}, status: {phase: Bound, capacity: {storage: 2Gi}}}`
	const spec, annotation, both = "spec", "annotation", "spec annotation" // what is refused
	values := []string{"", "gold", "bronze"}                               // an empty one is not set
	k := persistentVolumeClaims.Kind()
	classed := func(class, annotation string) *corev1.PersistentVolumeClaim {
		c := resourcetest.Object(t, k, claim, bound).(*corev1.PersistentVolumeClaim)
		if class != "" {
			c.Spec.StorageClassName = &class
		}
		if annotation != "" {
			c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: annotation}
		}
		return c
	}
	for _, test := range []struct {
		class, annotation string
		want              [3][3]string // by the values of the field, and then of the annotation
	}{
		{"", "", [3][3]string{
			{"", annotation, annotation},
			{"", annotation, annotation},
			{"", annotation, annotation},
		}},
		{"", "gold", [3][3]string{
			{annotation, "", annotation},
			{"", "", annotation},
			{both, spec, both},
		}},
		{"gold", "", [3][3]string{
			{spec, both, both},
			{"", annotation, annotation},
			{spec, both, both},
		}},
		{"gold", "gold", [3][3]string{
			{both, spec, both},
			{annotation, "", annotation},
			{both, spec, both},
		}},
		{"gold", "bronze", [3][3]string{
			{both, both, spec},
			{annotation, annotation, ""},
			{both, both, spec},
		}},
	} {
		old := classed(test.class, test.annotation)
		for i, class := range values {
			for j, value := range values {
				var got, want []string
				if refused := test.want[i][j]; refused == annotation || refused == both {
					want = append(want, fmt.Sprintf(`metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: %q: field is immutable`, value))
				}
				if refused := test.want[i][j]; refused == spec || refused == both {
					want = append(want, "spec")
				}
				for _, err := range k.ValidateUpdate(classed(class, value), old) {
					text := err.Error()
					if err.Field == "spec" { // its detail has the difference
						text = err.Field
					}
					got = append(got, text)
				}
				if !slices.Equal(got, want) {
					t.Errorf("field %q and annotation %q become %q and %q:\n%q, want\n%q", test.class, test.annotation, class, value, got, want)
				}
			}
		}
	}
}
