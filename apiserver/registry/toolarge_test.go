package registry_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

// Managed fields have the name of each key, so that they are as large as the object.
func TestAnObjectThatIsTooLargeWithManagedFieldsIsStoredWithoutThem(t *testing.T) {
	s := registrytest.Start(t, resource.Type[*corev1.ConfigMap]{Name: "configmaps", Namespaced: true})
	configMap := func(name string, keys int) map[string]any {
		data := map[string]string{}
		for i := range keys {
			data[fmt.Sprintf("%s%06d", strings.Repeat("k", 100), i)] = ""
		}
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data}
	}
	const path = "/api/v1/namespaces/n/configmaps"
	const fits, tooMany = 8_000, 15_000 // of about 110 bytes each; etcd accepts 1.5 MiB
	s.Do(http.MethodPost, path, configMap("updated", 1)).Want(http.StatusCreated)
	s.Do(http.MethodPost, path, configMap("patched", 1)).Want(http.StatusCreated)
	for _, test := range []struct {
		rule string
		do   func(keys int) *registrytest.Answer
		code int
	}{
		{"create", func(keys int) *registrytest.Answer { return s.Do(http.MethodPost, path, configMap("created", keys)) }, http.StatusCreated},
		{"update", func(keys int) *registrytest.Answer {
			return s.Do(http.MethodPut, path+"/updated", configMap("updated", keys))
		}, http.StatusOK},
		{"patch", func(keys int) *registrytest.Answer {
			return s.Patch("merge", path+"/patched", configMap("patched", keys))
		}, http.StatusOK},
	} {
		t.Run(test.rule, func(t *testing.T) {
			test.do(tooMany).Want(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "larger than etcd accepts")
			got := test.do(fits)
			if got.Code != test.code {
				t.Fatalf("answered %d: %.300s", got.Code, got.Body)
			}
			if managed := got.Field("metadata", "managedFields"); managed != nil {
				t.Errorf("the object has %d bytes with managed fields", len(got.Body))
			}
		})
	}
}
