package persistentvolumebinder

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/persistentvolumebinder/binding"
)

// newClient returns a client of an API with the objects, of which the write with the
// number fails.
func newClient(t *testing.T, failing int, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), storagev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{})
	for _, i := range []controller.Index{volumesByClaim(), unboundByClass(), waitingByVolume(), index.PodsByClaim()} {
		builder = builder.WithIndex(i.Object, i.Name, i.Values)
	}
	writes := 0
	fails := func() bool { writes++; return writes == failing }
	return builder.WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if fails() {
				return errors.New("no connection")
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if fails() {
				return errors.New("no connection")
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	}).Build()
}

func TestABindingIsCompletedAfterAFailureAtAnyWrite(t *testing.T) {
	const bindingWrites = 4
	for failing := range bindingWrites + 1 { // 0 is none
		size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "1"},
			Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: modes, StorageClassName: new(string), Resources: corev1.VolumeResourceRequirements{Requests: size}},
		}
		objects := []client.Object{claim}
		stock := &binding.Stock{}
		for _, name := range []string{"a", "b", "c"} {
			objects = append(objects, &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       corev1.PersistentVolumeSpec{AccessModes: modes, Capacity: size},
				Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
			})
		}
		c := newClient(t, failing, objects...)
		r := &claimReconciler{binder: binder{client: c, live: c, recorder: record.NewFakeRecorder(10)}, stock: stock, classSyncs: &controller.Trigger[string]{}, now: time.Now}
		var held corev1.PersistentVolumeList
		if err := c.List(t.Context(), &held); err != nil {
			t.Fatal(err)
		}
		for i := range held.Items {
			stock.Set(&held.Items[i])
		}
		failed := 0
		for range 2 {
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)}); err != nil {
				failed++
			}
		}
		if want := min(failing, 1); failed != want {
			t.Errorf("write %d fails: %d syncs failed, want %d", failing, failed, want)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			t.Fatal(err)
		}
		if _, complete := claim.Annotations[volume.AnnBindCompleted]; claim.Status.Phase != corev1.ClaimBound || !complete || claim.Status.Capacity.Storage().String() != "1Gi" {
			t.Errorf("write %d fails: the claim is %v %v", failing, claim.Annotations, claim.Status)
		}
		var volumes corev1.PersistentVolumeList
		if err := c.List(t.Context(), &volumes); err != nil {
			t.Fatal(err)
		}
		for i := range volumes.Items {
			pv := &volumes.Items[i]
			if bound := pv.Name == claim.Spec.VolumeName; bound != (pv.Spec.ClaimRef != nil) || bound != (pv.Status.Phase == corev1.VolumeBound) {
				t.Errorf("write %d fails: volume %s is %s of %v, the claim has %s", failing, pv.Name, pv.Status.Phase, pv.Spec.ClaimRef, claim.Spec.VolumeName)
			}
		}
	}
}

// The first sync was interrupted after it had written the claim's reference to a volume,
// and the cache learns of it while the second one runs.
func TestAClaimGetsNoOtherVolumeWhenItsOwnLeavesTheStock(t *testing.T) {
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "1"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, StorageClassName: new(string), Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
		}},
	}
	objects, stock := []client.Object{claim}, &binding.Stock{}
	for name, size := range map[string]string{"fits": "5Gi", "large": "20Gi"} {
		objects = append(objects, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				AccessModes: modes, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
		})
	}
	c := newClient(t, 0, objects...)
	for _, name := range []string{"fits", "large"} {
		pv := &corev1.PersistentVolume{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, pv); err != nil {
			t.Fatal(err)
		}
		stock.Set(pv)
	}
	arrives := sync.OnceValue(func() error {
		pv := &corev1.PersistentVolume{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "fits"}, pv); err != nil {
			return err
		}
		bound, _, err := volume.GetBindVolumeToClaim(pv, claim)
		if err != nil {
			return err
		}
		stock.Set(bound)
		return c.Update(t.Context(), bound)
	})
	cache := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if _, ok := list.(*corev1.PersistentVolumeList); ok {
				return errors.Join(err, arrives())
			}
			return err
		},
	})
	r := &claimReconciler{binder: binder{client: cache, live: c, recorder: record.NewFakeRecorder(10)}, stock: stock, classSyncs: &controller.Trigger[string]{}, now: time.Now}
	for range 2 { // the first fails with a conflict
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		if err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		t.Fatal(err)
	}
	if claim.Spec.VolumeName != "fits" || claim.Status.Phase != corev1.ClaimBound {
		t.Errorf("the claim is %s with volume %q, want Bound with fits", claim.Status.Phase, claim.Spec.VolumeName)
	}
}

// TestTheEventOfAClaimThatWaitsIsRecordedAgainBeforeItExpires: and not with each sync.
func TestTheEventOfAClaimThatWaitsIsRecordedAgainBeforeItExpires(t *testing.T) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Provisioner: "example.com/disks"}
	waiting := func(name, class string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class},
		}
	}
	for _, claim := range []*corev1.PersistentVolumeClaim{waiting("requested", "disks"), waiting("without-a-class", ""), waiting("of-an-absent-class", "absent")} {
		c, recorder, now := newClient(t, 0, class, claim), record.NewFakeRecorder(10), time.Now()
		r := &claimReconciler{binder: binder{client: c, live: c, recorder: recorder}, stock: &binding.Stock{}, now: func() time.Time { return now }}
		for _, step := range []struct {
			after  time.Duration
			events int
		}{{0, 1}, {0, 1}, {time.Minute, 1}, {remindAfter, 2}, {time.Minute, 2}} {
			now = now.Add(step.after)
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
			if err != nil || result.RequeueAfter != remindAfter || len(recorder.Events) != step.events {
				t.Errorf("%s: %d events, requeued after %s, %v; want %d", claim.Name, len(recorder.Events), result.RequeueAfter, err, step.events)
			}
		}
	}
}

// TestAVolumeThatIsCreatedAgainSyncsTheClaimThatHasLostIt: the volume does not name the claim.
func TestAVolumeThatIsCreatedAgainSyncsTheClaimThatHasLostIt(t *testing.T) {
	claim := func(name, volume string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
		}
	}
	w := watches{newClient(t, 0, claim("lost", "pv", corev1.ClaimLost), claim("other", "x", corev1.ClaimLost), claim("bound", "pv", corev1.ClaimBound), claim("waiting", "pv", corev1.ClaimPending))}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	created := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	w.volumeEvents(&binding.Stock{}, &controller.Trigger[string]{}).Handler.Create(t.Context(), event.CreateEvent{Object: created}, queue)
	var got []string
	for queue.Len() > 0 {
		request, _ := queue.Get()
		got = append(got, request.Name)
	}
	slices.Sort(got)
	if want := []string{"lost", "waiting"}; !slices.Equal(got, want) {
		t.Errorf("claims %v are synced, want %v", got, want)
	}
}

func TestAClaimGetsTheStatusOfItsVolumeWhenItBecomesBound(t *testing.T) {
	storage := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	preResize := func(size string) map[string]string {
		return map[string]string{"volume.alpha.kubernetes.io/pre-resize-capacity": size}
	}
	gold, silver := "gold", "silver"
	bound := corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storage("1Gi"), CurrentVolumeAttributesClassName: &silver}
	for _, test := range []struct {
		rule        string
		annotations map[string]string
		attributes  *string
		before      corev1.PersistentVolumeClaimStatus
		lost        bool // the volume does not exist
		want        corev1.PersistentVolumeClaimStatus
	}{
		{
			rule: "a pending claim gets the capacity and the VolumeAttributesClass", attributes: &gold,
			before: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
			want:   corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storage("2Gi"), CurrentVolumeAttributesClassName: &gold},
		},
		{
			rule: "a claim that is bound already keeps both", attributes: &gold, annotations: preResize("500Mi"),
			before: bound, want: bound,
		},
		{
			rule: "one that was lost gets the capacity only", attributes: &gold,
			before: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimLost},
			want:   corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storage("2Gi")},
		},
		{
			rule: "the file system of a volume has the size from before the volume grew", annotations: preResize("1Gi"),
			before: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
			want:   corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storage("1Gi")},
		},
		{
			rule: "unless that size is invalid", annotations: preResize("large"),
			before: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
			want:   corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storage("2Gi")},
		},
		{
			rule:   "a claim that loses its volume loses both",
			before: bound, lost: true,
			want: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimLost},
		},
	} {
		t.Run(test.rule, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "1", Annotations: map[string]string{volume.AnnBindCompleted: "yes"}},
				Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: test.before,
			}
			objects := []client.Object{claim}
			if !test.lost {
				objects = append(objects, &corev1.PersistentVolume{
					ObjectMeta: metav1.ObjectMeta{Name: "pv", Annotations: test.annotations},
					Spec:       corev1.PersistentVolumeSpec{Capacity: storage("2Gi"), VolumeAttributesClassName: test.attributes},
				})
			}
			c := newClient(t, 0, objects...)
			r := &claimReconciler{binder: binder{client: c, live: c, recorder: record.NewFakeRecorder(10)}, stock: &binding.Stock{}, now: time.Now}
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
				t.Fatal(err)
			}
			if !equal(claim.Status, test.want) {
				t.Errorf("the status is %+v, want %+v", claim.Status, test.want)
			}
		})
	}
}
