package apis

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

func TestPrivilegedContainersNeedPermissionWhereverPodsAreDescribed(t *testing.T) {
	privileged := &corev1.SecurityContext{Privileged: ptr.To(true)}
	spec := corev1.PodSpec{
		InitContainers:      []corev1.Container{{SecurityContext: privileged}},
		Containers:          []corev1.Container{{}, {SecurityContext: privileged}, {SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(false)}}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{SecurityContext: privileged}}},
	}
	described := 0
	for _, kind := range Kinds() {
		if kind.Restrict == nil { // nothing is stored
			continue
		}
		obj := kind.New()
		path := describe(reflect.ValueOf(obj).Elem(), spec, nil)
		if path == "" {
			continue
		}
		described++
		errs := kind.Restrict(&resource.Env{}, obj)
		var got []string
		for _, err := range errs {
			if err.Type != field.ErrorTypeForbidden || err.Detail != "disallowed by cluster policy" {
				t.Errorf("%s: %v", kind.Name, err)
			}
			got = append(got, err.Field)
		}
		want := []string{
			path + ".containers[1].securityContext.privileged",
			path + ".initContainers[0].securityContext.privileged",
			path + ".ephemeralContainers[0].securityContext.privileged",
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: refused are %v, want %v", kind.Name, got, want)
		}
		if errs := kind.Restrict(&resource.Env{AllowPrivileged: true}, obj); len(errs) > 0 {
			t.Errorf("%s: refused though allowed: %v", kind.Name, errs)
		}
	}
	if described != 9 {
		t.Errorf("%d kinds describe pods, want 9", described)
	}
}

func TestPodsOnWindowsHostsNeedPermission(t *testing.T) {
	for _, kind := range Kinds() {
		if kind.Resource() != corev1.Resource("pods") {
			continue
		}
		pod := &corev1.Pod{Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: ptr.To(true)}},
			Containers:      []corev1.Container{{Name: "c"}},
		}}
		want := "spec: Forbidden: hostProcess containers are disallowed by cluster policy"
		if errs := kind.Restrict(&resource.Env{}, pod); len(errs) != 1 || errs[0].Error() != want {
			t.Errorf("refused: %v, want %s", errs, want)
		}
	}
}

// describe puts the spec where v, a struct, has a pod's, and returns the
// JSON path of that; it is empty if v has none.
func describe(v reflect.Value, spec corev1.PodSpec, path []string) string {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Tag.Get("json")
		name, _, _ = strings.Cut(name, ",")
		here := append(path[:len(path):len(path)], name)
		if f.Type() == reflect.TypeFor[*corev1.PodTemplateSpec]() {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		if f.Type() == reflect.TypeFor[corev1.PodSpec]() {
			f.Set(reflect.ValueOf(spec))
			return strings.Join(here, ".")
		}
		if f.Kind() == reflect.Struct && strings.HasPrefix(f.Type().PkgPath(), "k8s.io/api/") {
			if found := describe(f, spec, here); found != "" {
				return found
			}
		}
	}
	return ""
}
