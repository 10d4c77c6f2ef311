package kindreader

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
)

func newReader() Reader[corelisters.ConfigMapLister] {
	return New(func(f informers.SharedInformerFactory) Informer[corelisters.ConfigMapLister] {
		return f.Core().V1().ConfigMaps()
	}, admission.Create)
}

func TestAReaderNeedsAClientAndInformers(t *testing.T) {
	client := fake.NewClientset()
	r := newReader()
	if err := r.ValidateInitialization(); err == nil {
		t.Error("valid with neither")
	}
	r.SetExternalKubeClientSet(client)
	if err := r.ValidateInitialization(); err == nil {
		t.Error("valid without informers")
	}
	r.SetExternalKubeInformerFactory(informers.NewSharedInformerFactory(client, 0))
	if err := r.ValidateInitialization(); err != nil {
		t.Error(err)
	}
}

func TestAReaderIsReadyOnceItsInformerHasSynced(t *testing.T) {
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "map"}})
	factory := informers.NewSharedInformerFactory(client, 0)
	r := newReader()
	r.SetExternalKubeInformerFactory(factory)
	factory.StartWithContext(t.Context())
	t.Cleanup(factory.Shutdown)
	if err := r.Ready(admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "ns", "pod", schema.GroupVersionResource{}, "", admission.Create, nil, false, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Lister.ConfigMaps("ns").Get("map"); err != nil {
		t.Error(err)
	}
}

func TestGetAsksTheStorageForWhatTheInformerDoesNotHave(t *testing.T) {
	notFound, broken := apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "map"), errors.New("broken")
	for _, test := range []struct {
		rule           string
		lister, client error
		want           string
		wantErr        error
	}{
		{rule: "the informer has it", client: broken, want: "lister"},
		{rule: "only the storage has it", lister: notFound, want: "client"},
		{rule: "neither has it", lister: notFound, client: notFound, wantErr: notFound},
		{rule: "the informer fails", lister: broken, wantErr: broken},
	} {
		t.Run(test.rule, func(t *testing.T) {
			got, err := Get(t.Context(), "map",
				func(string) (string, error) { return valueUnless("lister", test.lister) },
				func(context.Context, string, metav1.GetOptions) (string, error) {
					return valueUnless("client", test.client)
				})
			if got != test.want || !errors.Is(err, test.wantErr) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func valueUnless(value string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return value, nil
}
