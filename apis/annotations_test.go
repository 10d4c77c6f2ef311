package apis

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnnotationsOfInitContainersAreDroppedWhereverPodsAreDescribed(t *testing.T) {
	described := 0
	for _, kind := range Kinds() {
		obj := kind.New()
		meta := podMeta(reflect.ValueOf(obj).Elem())
		if meta == nil {
			continue
		}
		described++
		meta.Annotations = map[string]string{
			"pod.alpha.kubernetes.io/init-containers":         "[]",
			"pod.alpha.kubernetes.io/init-container-statuses": "[]",
			"pod.beta.kubernetes.io/init-containers":          "[]",
			"pod.beta.kubernetes.io/init-container-statuses":  "[]",
			"pod.beta.kubernetes.io/hostname":                 "web",
		}
		kind.Default(obj)
		if want := map[string]string{"pod.beta.kubernetes.io/hostname": "web"}; !maps.Equal(meta.Annotations, want) {
			t.Errorf("%s: the annotations are %v, want %v", kind.Name, meta.Annotations, want)
		}
	}
	if described != 9 {
		t.Errorf("%d kinds describe pods, want 9", described)
	}
}

// podMeta returns the metadata of the pod that v, a struct, is or has the template of. It
// is nil if v has none.
func podMeta(v reflect.Value) *metav1.ObjectMeta {
	switch at := v.Addr().Interface().(type) {
	case *corev1.Pod:
		return &at.ObjectMeta
	case *corev1.PodTemplateSpec:
		return &at.ObjectMeta
	}
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Type() == reflect.TypeFor[*corev1.PodTemplateSpec]() {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		if f.Kind() == reflect.Struct && strings.HasPrefix(f.Type().PkgPath(), "k8s.io/api/") {
			if found := podMeta(f); found != nil {
				return found
			}
		}
	}
	return nil
}
