package localpathprovisioner

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/localpath"
)

var errLost = errors.New("no connection")

// provisioner is a provisioner of which one write has no response.
type provisioner struct {
	client.Client // that of the test, whose writes have responses
	claims        *claimReconciler
	volumes       *volumeReconciler
	classes       *classReconciler
	failures      int
}

// newProvisioner returns a provisioner of which the write with the number has no response,
// though it may be done.
func newProvisioner(failing int, done bool, objects ...client.Object) *provisioner {
	base := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithStatusSubresource(&corev1.PersistentVolume{}).Build()
	writes := 0
	write := func(send func() error) error {
		writes++
		if writes != failing {
			return send()
		}
		if done {
			return errors.Join(send(), errLost)
		}
		return errLost
	}
	c := interceptor.NewClient(base, interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return write(func() error { return w.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write(func() error { return w.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return w.Delete(ctx, obj, opts...) })
		},
	})
	return &provisioner{
		Client: base, claims: &claimReconciler{client: c, recorder: record.NewFakeRecorder(100), scheme: scheme.Scheme},
		volumes: &volumeReconciler{client: c, live: base}, classes: &classReconciler{client: c},
	}
}

// sync calls a reconciler, and again after an error.
func (p *provisioner) sync(t *testing.T, reconcile func() error) {
	t.Helper()
	if err := reconcile(); err != nil {
		p.failures++
		if err := reconcile(); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *provisioner) syncClaim(t *testing.T, claim client.Object) {
	t.Helper()
	p.sync(t, func() error {
		_, err := p.claims.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		return err
	})
}

func (p *provisioner) syncVolume(t *testing.T) {
	t.Helper()
	p.sync(t, func() error {
		_, err := p.volumes.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "pvc-1"}})
		return err
	})
}

// volume returns the only volume, nil if there is none.
func (p *provisioner) volume(t *testing.T) *corev1.PersistentVolume {
	t.Helper()
	var list corev1.PersistentVolumeList
	if err := p.List(t.Context(), &list); err != nil || len(list.Items) > 1 {
		t.Fatalf("volumes %v, %v", list.Items, err)
	}
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

func claimOn(name, uid, node string) *corev1.PersistentVolumeClaim {
	class := "local-path"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), Annotations: map[string]string{
			volume.AnnStorageProvisioner: localpath.Provisioner, volume.AnnSelectedNode: node,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
	}
}

func TestAVolumeIsMadeAndDeletedAfterAFailureAtAnyWrite(t *testing.T) {
	const writes = 5 // the class, a node that is given up, the volume, its deletion and its finalizer
	for failing := range writes + 1 {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, done %v", failing, done), func(t *testing.T) {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
					Name: "n", Labels: map[string]string{corev1.LabelHostname: "host"}, Annotations: map[string]string{localpath.DirectoryAnnotation: "/data"},
				}}
				claim, elsewhere := claimOn("data", "1", "n"), claimOn("elsewhere", "2", "gone")
				p := newProvisioner(failing, done, node, claim, elsewhere)
				p.sync(t, func() error { _, err := p.classes.Reconcile(t.Context(), "local-path"); return err })
				if err := p.Get(t.Context(), client.ObjectKey{Name: "local-path"}, &storagev1.StorageClass{}); err != nil {
					t.Fatal(err)
				}
				p.syncClaim(t, elsewhere)
				if err := p.Get(t.Context(), client.ObjectKeyFromObject(elsewhere), elsewhere); err != nil || elsewhere.Annotations[volume.AnnSelectedNode] != "" {
					t.Errorf("claim %v, %v: the node that does not exist is still selected", elsewhere.Annotations, err)
				}
				p.syncClaim(t, claim)
				pv := p.volume(t)
				if pv == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.Name != "data" {
					t.Fatalf("volume %v, want one of the claim", pv)
				}
				pv.Status.Phase = corev1.VolumeReleased
				if err := p.Status().Update(t.Context(), pv); err != nil {
					t.Fatal(err)
				}
				p.syncVolume(t)
				if pv = p.volume(t); pv == nil || pv.DeletionTimestamp == nil {
					t.Fatalf("volume %v, want one that waits for the agent", pv)
				}
				p.syncVolume(t)
				if p.volume(t) == nil {
					t.Fatal("the finalizer of the agent was removed while there is a node")
				}
				if err := p.Delete(t.Context(), node); err != nil {
					t.Fatal(err)
				}
				p.syncVolume(t)
				if pv := p.volume(t); pv != nil {
					t.Errorf("volume %v still exists", pv)
				}
				if p.failures != min(failing, 1) {
					t.Errorf("%d failed syncs, want %d", p.failures, min(failing, 1))
				}
			})
		}
	}
}
