package scheduler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/scheduler/decision"
)

// podWithClaim adds the node n, and a pod that waits there until its claim data is bound. It returns
// the claim.
func (c *cluster) podWithClaim(pod string) *corev1.PersistentVolumeClaim {
	c.t.Helper()
	c.class("example.com/disks")
	claim := newClaim("data")
	c.core.claimChanged(nil, claim)
	c.node("n", nil)
	c.pod(pod, uses("data"))
	c.expect(pod + " -> n data=")
	return claim
}

func TestPodStaysAssumedWhileItsClaimsAreBound(t *testing.T) {
	c := newCluster(t)
	c.class("example.com/disks")
	claim := newClaim("data")
	c.core.claimChanged(nil, claim)
	c.node("n", nil)
	c.pod("a", uses("data"))
	c.pod("b", nil)
	c.pod("c", nil)
	c.expect("a -> n data=", "b -> n", "c: 1 Insufficient cpu")

	claim = claim.DeepCopy()
	claim.Annotations = map[string]string{volume.AnnSelectedNode: "n"}
	c.core.claimChanged(claim, claim)
	c.expect("a -> n data=")
	stale := c.steps["a"]

	claim = claim.DeepCopy()
	claim.Annotations[volume.AnnBindCompleted] = "yes"
	claim.Spec.VolumeName = "pv"
	c.core.volumeChanged(nil, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}})
	c.core.claimChanged(claim, claim)
	c.expect("a -> n")
	c.core.failed(stale)
	c.now = c.now.Add(time.Minute)
	c.expect()
}

// class creates the class "disks", whose claims wait for a pod.
func (c *cluster) class(provisioner string) {
	c.core.snapshot.SetClass(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Provisioner: provisioner, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("disks"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	}}
}

func newVolume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PersistentVolumeSpec{StorageClassName: "disks", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
		Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
}

// uses lets a pod use a claim.
func uses(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	}
}

func TestPodsThatAreDecidedOnTogetherGetDifferentVolumes(t *testing.T) {
	c := newCluster(t)
	c.class(volume.NotSupportedProvisioner)
	c.node("n", nil)
	c.node("m", nil)
	for _, name := range []string{"a", "b", "c"} {
		c.core.claimChanged(nil, newClaim(name))
		c.pod(name, uses(name))
	}
	c.core.volumeChanged(nil, newVolume("x"))
	c.core.volumeChanged(nil, newVolume("y"))
	c.expect("a -> m a=x", "b -> n b=y", "c: didn't find available persistent volumes to bind")

	// The volume of a step that failed is free again, also after an event that does not
	// show the reservation.
	c.core.volumeChanged(newVolume("x"), newVolume("x"))
	c.now = c.now.Add(time.Minute)
	c.expect("c: didn't find available persistent volumes to bind")
	c.core.failed(c.steps["a"])
	c.expect("c -> m c=x")

	// A reservation that a watch shows lasts.
	written := newVolume("x")
	written.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c", UID: "c"}
	c.core.volumeChanged(newVolume("x"), written)
	c.core.failed(c.steps["c"])
	c.now = c.now.Add(time.Minute)
	c.expect("a: didn't find available persistent volumes to bind", "c -> m c=x")
}

// The watch of claims may be ahead of that of volumes.
func TestAVolumeStaysReservedUntilTheWatchOfVolumesShowsItsClaim(t *testing.T) {
	for _, end := range []struct {
		name string
		of   func(*cluster)
		then []string
	}{
		{"the pod needs no more claims", func(*cluster) {}, nil},
		{"the pod is bound", func(c *cluster) { c.pod("a", on("n")) }, nil},
		{"binding the pod fails", func(c *cluster) { c.core.failed(c.steps["a"]) }, []string{"a -> n"}},
	} {
		t.Run(end.name, func(t *testing.T) {
			c := newCluster(t)
			c.class(volume.NotSupportedProvisioner)
			c.node("n", nil)
			c.core.claimChanged(nil, newClaim("a"))
			c.core.claimChanged(nil, newClaim("b"))
			c.core.volumeChanged(nil, newVolume("x"))
			c.pod("a", uses("a"))
			c.expect("a -> n a=x")
			bound := newClaim("a")
			bound.Annotations = map[string]string{volume.AnnBindCompleted: "yes"}
			bound.Spec.VolumeName = "x"
			c.core.claimChanged(newClaim("a"), bound)
			c.expect("a -> n")
			end.of(c)
			c.pod("b", uses("b"))
			c.expect("b: didn't find available persistent volumes to bind")

			// When the watch shows that the claim has gone, the volume is free.
			shown := newVolume("x")
			shown.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "a", UID: "a"}
			c.core.volumeChanged(newVolume("x"), shown)
			c.core.volumeChanged(shown, newVolume("x"))
			c.now = c.now.Add(time.Minute)
			c.expect(append(end.then, "b -> n b=x")...)
		})
	}
}

func TestAVolumeThatLosesItsClaimRetriesThePodsOfTheClaim(t *testing.T) {
	c := newCluster(t)
	claim := newClaim("a")
	c.class(volume.NotSupportedProvisioner)
	c.node("n", nil)
	c.core.claimChanged(nil, claim)
	c.core.volumeChanged(nil, newVolume("x"))
	c.pod("a", uses("a"))
	c.expect("a -> n a=x")
	shown := newVolume("x")
	shown.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "a", UID: "a"}
	c.core.volumeChanged(newVolume("x"), shown)
	c.expect("a -> n a=x")
	c.core.volumeChanged(shown, newVolume("x"))
	c.expect("a -> n a=x")
}

func TestPodsThatShareAClaimGetTheNodeThatIsSelectedForIt(t *testing.T) {
	c := newCluster(t)
	c.podWithClaim("a")
	c.node("m", nil)
	c.pod("other", on("n"))
	c.pod("b", uses("data"))
	c.expect("b: didn't find available persistent volumes to bind")
	c.core.failed(c.steps["a"])
	c.expect("b -> m data=")
}

func TestOnlyEventsOfItsOwnClaimsRetryAPodThatWaitsForThem(t *testing.T) {
	c := newCluster(t)
	c.class("example.com/disks")
	c.node("n", nil)
	for _, name := range []string{"a", "b"} {
		c.core.claimChanged(nil, newClaim(name))
		c.pod(name, uses(name))
	}
	c.expect("a -> n a=", "b -> n b=")
	c.core.claimChanged(nil, newClaim("other"))
	c.core.volumeChanged(nil, newVolume("other"))
	c.expect()
	c.core.claimChanged(newClaim("b"), newClaim("b"))
	c.expect("b -> n b=")
	created := newVolume("x")
	created.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "a", UID: "a"}
	c.core.volumeChanged(nil, created)
	c.expect("a -> n a=")
	c.core.volumeChanged(created, nil)
	c.expect("a -> n a=")
	c.core.claimChanged(newClaim("a"), nil)
	c.expect(`a: persistentvolumeclaim "a" not found`)
}

func TestAPodWaitsForItsClaimsNoLongerThanItsProfileAllows(t *testing.T) {
	c := newCluster(t)
	profile := decision.DefaultProfile("default-scheduler")
	profile.BindTimeout = time.Minute
	c.core.snapshot.SetProfiles(profile)
	c.podWithClaim("a")
	for _, name := range []string{"b", "c"} {
		c.pod(name, nil)
	}
	c.expect("b -> n", "c: 1 Insufficient cpu")
	c.now = c.now.Add(30 * time.Second)
	c.core.claimChanged(newClaim("data"), newClaim("data"))
	c.expect("a -> n data=")
	if next, ok := c.core.queue.Next(); !ok || !next.Equal(c.now.Add(30*time.Second)) {
		t.Errorf("the next decision is at %v, now is %v", next, c.now)
	}
	c.now = c.now.Add(30 * time.Second)
	// Others get its resources.
	c.expect("a: binding volumes: claim data was not bound within 1m0s", "c -> n")
	c.now = c.now.Add(time.Minute)
	c.expect("a: 1 Insufficient cpu")
}

func TestAPodWithoutTimeToWaitGetsItsClaimsBoundAndIsRetried(t *testing.T) {
	c := newCluster(t)
	profile := decision.DefaultProfile("default-scheduler")
	profile.BindTimeout = 0
	c.core.snapshot.SetProfiles(profile)
	c.class("example.com/disks")
	c.core.claimChanged(nil, newClaim("data"))
	c.node("n", nil)
	c.pod("a", uses("data"))
	c.expect("a -> n data=", "a: binding volumes: claim data was not bound within 0s")
	c.now = c.now.Add(time.Minute)
	bound := newClaim("data")
	bound.Annotations = map[string]string{volume.AnnBindCompleted: "yes"}
	bound.Spec.VolumeName = "x"
	c.core.volumeChanged(nil, newVolume("x"))
	c.core.claimChanged(newClaim("data"), bound)
	c.expect("a -> n")
}

func TestTheEndOfAnAttachmentRetriesAPodThatFoundNoRoomForItsVolume(t *testing.T) {
	c := newCluster(t)
	c.node("n", nil)
	c.core.snapshot.SetCSINode(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: "d", Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](1)}}},
	}})
	for _, name := range []string{"old", "new"} {
		pv := newVolume(name)
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: name}
		c.core.volumeChanged(nil, pv)
	}
	claim := newClaim("new")
	claim.Annotations = map[string]string{volume.AnnBindCompleted: "yes"}
	claim.Spec.VolumeName = "new"
	c.core.claimChanged(nil, claim)
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "d", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("old")},
	}}
	c.core.attachmentChanged(nil, attachment)
	c.pod("a", uses("new"))
	c.expect("a: exceed max volume count")
	c.now = c.now.Add(time.Minute)
	c.core.attachmentChanged(attachment, attachment)
	c.expect()
	c.core.attachmentChanged(attachment, nil)
	c.expect("a -> n")
}

// TestAPodWhoseProvisionerGivesUpTheNodeIsRetriedAfterABackoffThatGrows: otherwise scheduler and
// provisioner would select and give up nodes without a pause.
func TestAPodWhoseProvisionerGivesUpTheNodeIsRetriedAfterABackoffThatGrows(t *testing.T) {
	c := newCluster(t)
	c.class("example.com/disks")
	c.core.claimChanged(nil, newClaim("data"))
	c.node("n", nil)
	c.pod("a", uses("data"))
	selected := newClaim("data")
	selected.Annotations = map[string]string{volume.AnnSelectedNode: "n"}
	for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second} {
		c.expect("a -> n data=")
		c.core.claimChanged(newClaim("data"), selected)
		c.expect("a -> n data=")
		c.core.claimChanged(selected, newClaim("data"))
		c.expect(`a: binding volumes: provisioning failed for PVC "data"`)
		c.core.claimChanged(newClaim("data"), newClaim("data"))
		c.expect()
		if next, ok := c.core.queue.Next(); !ok || !next.Equal(c.now.Add(pause)) {
			t.Errorf("the next decision is after %v, want %v", next.Sub(c.now), pause)
		}
		c.now = c.now.Add(pause)
	}
}
