package localvolume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"svc.dev/svc/apis/localpath"
)

func TestADeletedVolumeIsRemovedOnce(t *testing.T) {
	const other = "example.com/other" // keeps the object of the fake client
	for _, test := range []struct {
		name   string
		change func(*corev1.PersistentVolume)
		inUse  bool
		// removed and released are whether the directory and the finalizer are.
		removed, released bool
		// failed is whether a failure is logged.
		failed bool
	}{
		{"its directory, then the finalizer", nil, false, true, true, false},
		{"not while a pod uses it", nil, true, false, false, false},
		{"not while a claim is bound to it", func(pv *corev1.PersistentVolume) {
			pv.Finalizers = append(pv.Finalizers, "kubernetes.io/pv-protection")
		}, false, false, false, false},
		{"not the directory if it is to be retained", func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, false, false, true, false},
		{"not another directory", func(pv *corev1.PersistentVolume) { pv.Spec.Local.Path = "/etc" }, false, false, false, true},
		{"not one of another provisioner", func(pv *corev1.PersistentVolume) { pv.Annotations = nil }, false, false, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := t.TempDir()
			dir := filepath.Join(all, "pv")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			pv := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{
					Name: "pv", Finalizers: []string{other, localpath.Finalizer}, DeletionTimestamp: new(metav1.Now()),
					Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": localpath.Provisioner},
				},
				Spec: corev1.PersistentVolumeSpec{
					PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
					PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}},
				},
			}
			if test.change != nil {
				test.change(pv)
			}
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pv).Build()
			m := New(Options{Dir: all, Node: "n", Client: c, Clock: clock.RealClock{}, Remove: func(_ context.Context, dir string) error {
				if test.inUse {
					return fmt.Errorf("%s: %w", dir, ErrInUse)
				}
				return os.RemoveAll(dir)
			}})
			stored := &corev1.PersistentVolume{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(pv), stored); err != nil {
				t.Fatal(err)
			}
			m.see(stored)
			logged := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			m.removeAll(klog.NewContext(t.Context(), logged))
			text := logged.GetSink().(ktesting.Underlier).GetBuffer().String()
			if failed := strings.Contains(text, "Failed"); failed != test.failed {
				t.Errorf("logged a failure: %v, want %v: %s", failed, test.failed, text)
			}
			if waits := strings.Contains(text, "will retry"); waits != (test.failed || test.inUse) {
				t.Errorf("logged that it will retry: %v: %s", waits, text)
			}
			_, err := os.Stat(dir)
			if removed := errors.Is(err, os.ErrNotExist); removed != test.removed {
				t.Errorf("directory removed: %v, want %v", removed, test.removed)
			}
			after := &corev1.PersistentVolume{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(pv), after); err != nil {
				t.Fatal(err)
			}
			if released := len(after.Finalizers) < len(pv.Finalizers); released != test.released {
				t.Errorf("finalizer removed: %v, want %v", released, test.released)
			}
		})
	}
}
