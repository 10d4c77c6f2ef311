package persistentvolumeexpander

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/localpath"
)

func TestAVolumeIsExpandedAfterAFailureAtAnyWrite(t *testing.T) {
	const writes = 2                  // the volume and the claim
	for failing := range writes + 1 { // 0 is none
		scheme := runtime.NewScheme()
		if err := corev1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		size := func(text string) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
		}
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "1"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv", Resources: corev1.VolumeResourceRequirements{Requests: size("2Gi")}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size("1Gi")},
		}
		pv := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv", Annotations: map[string]string{volume.AnnDynamicallyProvisioned: localpath.Provisioner}},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: size("1Gi"), ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "data", UID: "1"},
				PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{}},
			},
		}
		written := 0
		refused := func() error {
			if written++; written == failing {
				return errors.New("no connection")
			}
			return nil
		}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(claim, pv).WithStatusSubresource(claim).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if err := refused(); err != nil {
					return err
				}
				return w.Patch(ctx, obj, patch, opts...)
			},
			SubResourcePatch: func(ctx context.Context, w client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				if err := refused(); err != nil {
					return err
				}
				return w.SubResource(sub).Patch(ctx, obj, patch, opts...)
			},
		}).Build()
		failed := 0
		for range 2 {
			r := &reconciler{c, record.NewFakeRecorder(10)}
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)}); err != nil {
				failed++
			}
		}
		if want := min(failing, 1); failed != want {
			t.Errorf("write %d fails: %d syncs failed, want %d", failing, failed, want)
		}
		if err := errors.Join(c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim), c.Get(t.Context(), client.ObjectKeyFromObject(pv), pv)); err != nil {
			t.Fatal(err)
		}
		if has, of := claim.Status.Capacity.Storage().String(), pv.Spec.Capacity.Storage().String(); has != "2Gi" || of != "2Gi" {
			t.Errorf("write %d fails: the claim has %s of %s", failing, has, of)
		}
		if written != writes+failed {
			t.Errorf("write %d fails: %d writes, want %d", failing, written, writes+failed)
		}
	}
}
