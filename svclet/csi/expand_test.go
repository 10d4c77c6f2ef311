package csi

import (
	"testing"

	"github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	f.Expect(f.deferred).To(gomega.HaveLen(1))
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
	f.Expect(f.sizes).To(gomega.BeEmpty())
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
