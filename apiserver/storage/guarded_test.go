package storage

import (
	"errors"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"svc.dev/svc/apiserver/etcd"
)

func TestNoObjectIsWrittenWhileTheConfigurationForbidsIt(t *testing.T) {
	member := startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")})
	var forbidden, undeletable error
	b, err := Open(Config{
		Servers: member.Endpoints(), Writable: func() error { return forbidden }, Deletable: func() error { return undeletable },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	s, _ := configMaps(t, b)
	create(t.Context(), t, s, "a")
	changed := func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		c := obj.DeepCopyObject().(*corev1.ConfigMap)
		c.Data = map[string]string{"changed": "true"}
		return c, nil, nil
	}
	writes := map[string]func() error{
		"create": func() error { return s.Create(t.Context(), keyOf("b"), &corev1.ConfigMap{}, &corev1.ConfigMap{}, 0) },
		"update": func() error {
			return s.GuaranteedUpdate(t.Context(), keyOf("a"), &corev1.ConfigMap{}, false, nil, changed, nil)
		},
		"delete": func() error {
			return s.Delete(t.Context(), keyOf("a"), &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
		},
	}
	forbidden = errors.New("not yet")
	undeletable = forbidden
	before := versionOf(t, s, "a")
	for name, write := range writes {
		if err := write(); !errors.Is(err, forbidden) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := list(t.Context(), s, everything); got != "a" || err != nil || versionOf(t, s, "a") != before {
		t.Errorf("listed %q, %v, at version %s, want a at %s", got, err, versionOf(t, s, "a"), before)
	}
	undeletable = nil
	if err := writes["delete"](); err != nil {
		t.Errorf("delete, which alone is allowed: %v", err)
	}
	forbidden = nil
	create(t.Context(), t, s, "a")
	for _, name := range []string{"create", "update", "delete"} {
		if err := writes[name](); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
