package csi

import (
	"errors"
	"testing"

	"github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/volumeexpansion"
)

// grown returns a volume of a pod that has been expanded to a size.
func grown(uid types.UID, size string) Volume {
	return persistent(uid, func(v *Volume) {
		v.PV.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	})
}

func TestAVolumeThatIsNotExpandedInUseIsMounted(t *testing.T) {
	f := newFixture(t, expands)
	f.driver.Fail("expand", status.Error(codes.FailedPrecondition, "the hut is occupied"))
	attempts := func(uid types.UID, size string) int {
		t.Helper()
		before := len(f.driver.Expanded())
		f.publish(grown(uid, size))
		return len(f.driver.Expanded()) - before
	}
	f.Expect(attempts("u1", "2Gi")).To(gomega.Equal(1))
	f.Expect(attempts("u1", "2Gi")).To(gomega.Equal(0), "in use")
	f.Expect(attempts("u1", "3Gi")).To(gomega.Equal(1), "another size")
	f.Expect(attempts("u2", "3Gi")).To(gomega.Equal(1), "another pod")
	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
	f.Expect(attempts("u1", "3Gi")).To(gomega.Equal(1), "another pod with its volume")
}

func TestAnInfeasibleExpansionIsMarkedAndNotRepeated(t *testing.T) {
	f := newFixture(t, expands)
	f.driver.Fail("expand", status.Error(codes.OutOfRange, "the hut is full"))
	v := grown("u1", "2Gi")
	full := gomega.ContainSubstring("the hut is full")
	// A resizer that does not record its state in the claim would not remove the mark.
	plain := v
	plain.Claim = v.Claim.DeepCopy()
	_, err := f.Publish(t.Context(), plain) // the claim does not exist: nothing can be written
	f.Expect(err).To(gomega.And(gomega.MatchError(full), gomega.Not(gomega.MatchError(gomega.ContainSubstring("infeasible")))))

	v.Claim.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	v.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
		{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue},
		{Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, Message: "before"},
	}
	f.Expect(f.client.Create(t.Context(), v.Claim)).To(gomega.Succeed())
	for range 2 { // the agent may not have received the claim's status yet
		_, err := f.Publish(t.Context(), v)
		f.Expect(err).To(gomega.MatchError(full))
	}

	claim := &corev1.PersistentVolumeClaim{}
	f.Expect(f.client.Get(t.Context(), client.ObjectKeyFromObject(v.Claim), claim)).To(gomega.Succeed())
	f.Expect(claim.Status.AllocatedResourceStatuses).To(gomega.HaveKeyWithValue(corev1.ResourceStorage, corev1.PersistentVolumeClaimNodeResizeInfeasible))
	f.Expect(claim.Status.Conditions).To(gomega.HaveExactElements(
		gomega.HaveField("Type", corev1.PersistentVolumeClaimFileSystemResizePending),
		gomega.And(gomega.HaveField("Type", corev1.PersistentVolumeClaimNodeResizeError), gomega.HaveField("Message", full)),
	))
	v.Claim = claim
	f.publish(v)
	f.Expect(f.driver.Expanded()).To(gomega.HaveLen(3))
}

func TestAVolumeThatAnotherNodeHasExpandedIsExpandedOnThisOneToo(t *testing.T) {
	f := newFixture(t, expands)
	sized := func(volume, claim string) Volume {
		v := grown("u1", volume)
		v.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		v.Claim.Status.Capacity[corev1.ResourceStorage] = resource.MustParse(claim)
		return v
	}
	f.publish(sized("1Gi", "1Gi"))
	for range 2 { // the other node has written the capacity
		f.publish(sized("2Gi", "2Gi"))
	}
	f.Expect(f.driver.Expanded()).To(gomega.HaveLen(1))
	f.Expect(f.driver.Expanded()[0].GetCapacityRange().GetRequiredBytes()).To(gomega.Equal(int64(2 << 30)))

	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
	f.publish(sized("3Gi", "3Gi"))
	f.Expect(f.driver.Expanded()).To(gomega.HaveLen(1), "it is mounted as large as it is")

	// The capacity is written again until that has succeeded.
	_, err := f.Publish(t.Context(), sized("4Gi", "3Gi")) // the claim does not exist
	f.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("writing the capacity")))
	v := sized("4Gi", "3Gi")
	f.Expect(f.client.Create(t.Context(), v.Claim)).To(gomega.Succeed())
	f.publish(v)
	f.Expect(f.client.Get(t.Context(), client.ObjectKeyFromObject(v.Claim), v.Claim)).To(gomega.Succeed())
	f.Expect(v.Claim.Status.Capacity.Storage().String()).To(gomega.Equal("4Gi"))
}

// resizing returns a volume of 2Gi whose claim, which the API server has, has 1Gi and a state of
// the expansion.
func (f *fixture) resizing(state corev1.ClaimResourceStatus) Volume {
	f.Helper()
	v := grown("u1", "2Gi")
	v.Claim.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	v.Claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: state}
	v.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
	f.Expect(f.client.Create(f.Context(), v.Claim)).To(gomega.Succeed())
	return v
}

// read reads the claim of a volume again, and returns its state.
func (f *fixture) read(v Volume) (state corev1.ClaimResourceStatus) {
	f.Helper()
	f.Expect(f.client.Get(f.Context(), client.ObjectKeyFromObject(v.Claim), v.Claim)).To(gomega.Succeed())
	return v.Claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
}

func TestTheClaimAndTheEventsHaveTheStateOfAnExpansion(t *testing.T) {
	f := newFixture(t, expands)
	v := f.resizing(corev1.PersistentVolumeClaimNodeResizePending)
	f.driver.Fail("expand", status.Error(codes.Unavailable, "the hut is busy"))
	_, err := f.Publish(t.Context(), v)
	var failure *volumeexpansion.Error
	f.Expect(errors.As(err, &failure)).To(gomega.BeTrue(), "%v", err)
	f.Expect(f.read(v)).To(gomega.Equal(corev1.PersistentVolumeClaimNodeResizeInProgress))
	f.Expect(v.Claim.Status.Conditions).To(gomega.HaveLen(1), "the driver may go on")

	f.driver.Fail("expand", status.Error(codes.Internal, "the hut is broken"))
	_, err = f.Publish(t.Context(), v)
	f.Expect(err).To(gomega.MatchError(`MountVolume.NodeExpandVolume failed for volume "pv1": NodeExpandVolume of CSI driver hut.example: rpc error: code = Internal desc = the hut is broken`))
	f.Expect(f.read(v)).To(gomega.Equal(corev1.PersistentVolumeClaimNodeResizeInProgress))
	f.Expect(v.Claim.Status.Conditions).To(gomega.ContainElement(gomega.HaveField("Type", corev1.PersistentVolumeClaimNodeResizeError)))

	f.Expect(f.events.Events).NotTo(gomega.Receive())
	f.driver.Fail("expand", nil)
	f.publish(v)
	f.Expect(f.read(v)).To(gomega.BeEmpty())
	f.Expect(v.Claim.Status.Conditions).To(gomega.BeEmpty())
	for range 2 { // of the pod and of the claim
		f.Expect(f.events.Events).To(gomega.Receive(gomega.Equal(`Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume "pv1" n1`)))
	}
}

func TestAnExpansionOnTheNodeWaitsForTheResizer(t *testing.T) {
	f := newFixture(t, expands)
	v := f.resizing(corev1.PersistentVolumeClaimControllerResizeInProgress) // the resizer has written the PersistentVolume
	f.publish(v)
	f.Expect(f.driver.Expanded()).To(gomega.BeEmpty())
	v.Claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizePending
	f.Expect(f.client.Status().Update(t.Context(), v.Claim)).To(gomega.Succeed())
	f.publish(v)
	f.Expect(f.driver.Expanded()).To(gomega.HaveLen(1))
}

func TestTheStatusOfAClaimThatWasReadTooEarlyIsNotWritten(t *testing.T) {
	f := newFixture(t, expands)
	v := f.resizing("")
	early := v
	early.Claim = v.Claim.DeepCopy()
	v.Claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizePending
	f.Expect(f.client.Status().Update(t.Context(), v.Claim)).To(gomega.Succeed())
	_, err := f.Publish(t.Context(), early)
	f.Expect(apierrors.IsConflict(err)).To(gomega.BeTrue(), "%v", err)
	f.Expect(f.read(v)).To(gomega.Equal(corev1.PersistentVolumeClaimNodeResizePending))
}

func TestAVolumeThatItsControllerExpandsOnItsOwnIsNotExpandedOnTheNode(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"of one node": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		},
		"of several, if the resizer has noted so": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes, c.Annotations = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, map[string]string{"volume.kubernetes.io/node-expansion-not-required": "true"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, expands)
			f.publish(persistent("u1"))
			f.publish(persistent("u1", func(v *Volume) {
				v.PV.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("2Gi")
				v.Claim.Status.Capacity[corev1.ResourceStorage] = resource.MustParse("2Gi")
				change(v.Claim)
			}))
			f.Expect(f.driver.Expanded()).To(gomega.BeEmpty())
		})
	}
}
