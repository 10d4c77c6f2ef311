package volumeexpansion

import (
	"errors"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	eventrecord "k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// fixture is a manager with a volume of 2Gi, whose claim has 1Gi and waits for the node.
type fixture struct {
	*testing.T
	*gomega.WithT
	*Manager
	client client.Client
	volume *Volume
}

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"},
		Spec:       corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: storage("2Gi")}},
		Status: corev1.PersistentVolumeClaimStatus{
			Capacity: storage("1Gi"), AllocatedResources: storage("2Gi"),
			AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending},
		},
	}
	f := &fixture{T: t, WithT: gomega.NewWithT(t), client: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).
		WithStatusSubresource(claim).WithObjects(claim).Build()}
	f.Manager = New(Options{NodeName: "n1", Client: f.client, Events: eventrecord.NewFakeRecorder(100), Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))})
	f.volume = &Volume{
		Key: "k", Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}, Claim: claim,
		PV: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{Capacity: storage("2Gi")}},
	}
	f.read()
	return f
}

// read reads the claim again, and returns the state of its expansion.
func (f *fixture) read() corev1.ClaimResourceStatus {
	f.Helper()
	f.volume.Claim = &corev1.PersistentVolumeClaim{}
	f.Expect(f.client.Get(f.Context(), types.NamespacedName{Namespace: "ns", Name: "c"}, f.volume.Claim)).To(gomega.Succeed())
	return resizeStatus(f.volume.Claim)
}

// TestAnExpansionThatFailsAgainIsInfeasibleOnceTheRequestDiffers, so that its resizer goes on with
// the new size.
func TestAnExpansionThatFailsAgainIsInfeasibleOnceTheRequestDiffers(t *testing.T) {
	f := newFixture(t)
	attempt := func() {
		t.Helper()
		f.Expect(f.Due(f.volume)).To(gomega.BeTrue())
		f.Expect(f.Expand(t.Context(), f.volume, func() error { return errors.New("the disk is too small") })).
			To(gomega.MatchError(`MountVolume.NodeExpandVolume failed for volume "pv": the disk is too small`))
	}
	attempt()
	f.Expect(f.read()).To(gomega.Equal(corev1.PersistentVolumeClaimNodeResizeInProgress))
	attempt()
	f.Expect(f.read()).To(gomega.Equal(corev1.PersistentVolumeClaimNodeResizeInProgress), "the request is the same")

	f.volume.Claim.Spec.Resources.Requests = storage("1500Mi")
	f.Expect(f.client.Update(t.Context(), f.volume.Claim)).To(gomega.Succeed())
	attempt()
	f.Expect(f.read()).To(gomega.Equal(corev1.PersistentVolumeClaimNodeResizeInfeasible))
	f.Expect(f.Due(f.volume)).To(gomega.BeFalse())
}

// TestAVolumeIsExpandedOnce, until all pods have left it.
func TestAVolumeIsExpandedOnce(t *testing.T) {
	f := newFixture(t)
	f.Expect(f.Due(f.volume)).To(gomega.BeTrue())
	f.Expect(f.Expand(t.Context(), f.volume, func() error { return nil })).To(gomega.Succeed())
	f.Expect(f.Due(f.volume)).To(gomega.BeFalse())
	f.Expect(f.read()).To(gomega.BeEmpty())
	f.Expect(f.volume.Claim.Status.Capacity.Storage().String()).To(gomega.Equal("2Gi"))
	f.Expect(f.sizes).To(gomega.HaveLen(1))
	f.Forget("k")
	f.ForgetPod("u")
	f.Expect(f.sizes).To(gomega.BeEmpty())
	f.Expect(f.deferred).To(gomega.BeEmpty())
	f.Expect(f.failed).To(gomega.BeEmpty())
}

func TestWhatIsNotDue(t *testing.T) {
	for name, change := range map[string]func(*Volume){
		"a volume without a claim":         func(v *Volume) { v.Claim = nil },
		"one that is mounted read-only":    func(v *Volume) { v.ReadOnly = true },
		"one whose claim has no capacity":  func(v *Volume) { v.Claim.Status.Capacity = nil },
		"one that is as large as it was":   func(v *Volume) { v.PV.Spec.Capacity = storage("1Gi") },
		"one whose resizer works":          func(v *Volume) { setStatus(v, corev1.PersistentVolumeClaimControllerResizeInProgress) },
		"one that its resizer cannot grow": func(v *Volume) { setStatus(v, corev1.PersistentVolumeClaimControllerResizeInfeasible) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			change(f.volume)
			f.Expect(f.Due(f.volume)).To(gomega.BeFalse())
		})
	}
}

func setStatus(v *Volume, state corev1.ClaimResourceStatus) {
	v.Claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = state
}
