package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"svc.dev/svc/apis"
	"svc.dev/svc/apiserver/etcd"
)

// namesOfEach returns the names of the stored config maps.
func namesOfEach(t *testing.T, b *Backend) ([]string, error) {
	t.Helper()
	kinds := apis.Kinds()
	scheme, err := apis.NewScheme(kinds)
	if err != nil {
		t.Fatal(err)
	}
	codec, _ := KindCodec(scheme, kinds)
	var names []string
	err = b.Each(t.Context(), corev1.Resource("configmaps"), codec, func() runtime.Object { return &corev1.ConfigMap{} }, func(obj runtime.Object) error {
		names = append(names, obj.(*corev1.ConfigMap).Name)
		return nil
	})
	return names, err
}

func TestEachObjectIsReadPageByPageWithoutACache(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	for i := range pageSize + 1 {
		create(t.Context(), t, s, fmt.Sprintf("c%04d", i))
	}
	names, err := namesOfEach(t, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != pageSize+1 || names[0] != "c0000" || names[pageSize] != fmt.Sprintf("c%04d", pageSize) {
		t.Errorf("%d objects are read: %v", len(names), names)
	}
	if lazyOf(s).opened.Load() != nil {
		t.Error("there is a watch cache")
	}
}

func TestAnObjectThatCannotBeReadIsNamed(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	for _, test := range []struct{ name, value, says string }{
		{"garbage", "garbage", "couldn't get version/kind"},
		{"a version that does not exist", `{"apiVersion": "v9", "kind": "ConfigMap"}`, "no kind"},
		{"encrypted, without a key", "k8s:enc:secretbox:v1:a:text", "identity transformer tried to read encrypted data"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := b.Client().Put(t.Context(), "/registry/configmaps/default/a", test.value); err != nil {
				t.Fatal(err)
			}
			_, err := namesOfEach(t, b)
			if unreadable := (*Unreadable)(nil); !errors.As(err, &unreadable) || unreadable.Object != "configmaps default/a" || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want one of configmaps default/a that says %q", err, test.says)
			}
		})
	}
}

func TestObjectsThatCannotBeReadAreNamedAndDeletedIfTheGateIsOn(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	for name, value := range map[string]string{"garbage": "garbage", "encrypted": "k8s:enc:secretbox:v1:a:text"} {
		if _, err := b.Client().Put(t.Context(), "/registry/configmaps/default/"+name, value); err != nil {
			t.Fatal(err)
		}
	}
	fromEtcd := storage.ListOptions{Recursive: true, Predicate: storage.Everything, ResourceVersion: "1", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	fromEtcd.Predicate.Limit = 10
	unsafely := func(s storage.Interface, name string) error {
		return s.Delete(t.Context(), keyOf(name), &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{ExpectTransformOrDecodeError: true})
	}
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.AllowUnsafeMalformedObjectDeletion, false)
	s, _ := configMaps(t, b)
	if _, err := list(t.Context(), s, fromEtcd); err == nil || apierrors.IsStoreReadError(err) {
		t.Errorf("a list without the gate: %v", err)
	}
	if err := unsafely(s, "garbage"); err == nil {
		t.Error("an object is deleted without the gate")
	}

	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.AllowUnsafeMalformedObjectDeletion, true)
	s, _ = configMaps(t, b)
	_, err := list(t.Context(), s, fromEtcd)
	status := (*apierrors.StatusError)(nil)
	if !errors.As(err, &status) || !apierrors.IsStoreReadError(err) || len(status.ErrStatus.Details.Causes) != 2 {
		t.Errorf("a list: %v", err)
	}
	if err := s.Get(t.Context(), keyOf("garbage"), storage.GetOptions{}, &corev1.ConfigMap{}); !storage.IsCorruptObject(err) {
		t.Errorf("a get: %v", err)
	}
	for _, name := range []string{"garbage", "encrypted"} {
		if err := unsafely(s, name); err != nil {
			t.Errorf("%s is not deleted: %v", name, err)
		}
	}
	create(t.Context(), t, s, "readable")
	if err := unsafely(s, "readable"); err == nil {
		t.Error("an object that can be read is deleted without reading it")
	}
	if got, err := list(t.Context(), s, everything); got != "readable" || err != nil {
		t.Errorf("listed %q, %v", got, err)
	}
}

// brokenPlugin is a KMS plugin that answers with an error.
type brokenPlugin struct{ value.Transformer }

func (brokenPlugin) TransformerForResource(schema.GroupResource) value.Transformer {
	return brokenPlugin{}
}

func (brokenPlugin) TransformFromStorage(context.Context, []byte, value.Context) ([]byte, bool, error) {
	return nil, false, fmt.Errorf("failed to decrypt DEK, error: %w", status.Error(codes.Unavailable, "the plugin is away"))
}

func TestAnObjectMayBeReadableWhenEtcdOrAPluginAnswersAgain(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	create(t.Context(), t, s, "a")
	b.config.Transformers = brokenPlugin{}
	_, err := namesOfEach(t, b)
	if unreadable := (*Unreadable)(nil); errors.As(err, &unreadable) || err == nil || !strings.Contains(err.Error(), "configmaps default/a") {
		t.Errorf("a plugin that is away: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = namesOfEach(t, b)
	if unreadable := (*Unreadable)(nil); errors.As(err, &unreadable) || err == nil || !strings.Contains(err.Error(), "read configmaps") {
		t.Errorf("an etcd that is away: %v", err)
	}
}
