package csi

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// count returns how many volumes of the driver the node may have, as the CSINode says.
func (f *fixture) count() int32 {
	f.Helper()
	found := &storagev1.CSINode{}
	f.Expect(f.client.Get(f.Context(), client.ObjectKey{Name: "n1"}, found)).To(gomega.Succeed())
	f.Expect(found.Spec.Drivers).To(gomega.HaveLen(1))
	return *found.Spec.Drivers[0].Allocatable.Count
}

func TestADriverIsAskedAgainHowManyVolumesTheNodeMayHave(t *testing.T) {
	f, clock := newFixture(t), clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	f.o.Clock = clock
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.RunAllocatable(ctx) }()
	defer func() { cancel(); <-done }()
	waits := func() { t.Helper(); f.Eventually(clock.HasWaiters).Should(gomega.BeTrue()) }

	waits()
	f.driver.SetMaxVolumes(9)
	clock.Step(allocatablePeriod)
	waits()
	f.Expect(f.count()).To(gomega.Equal(int32(7)), "without a period")

	f.change(func(s *storagev1.CSIDriverSpec) { s.NodeAllocatableUpdatePeriodSeconds = ptr.To[int64](10) })
	clock.Step(allocatablePeriod)
	waits()
	f.Expect(f.count()).To(gomega.Equal(int32(7)), "the period begins")
	clock.Step(10 * time.Second)
	waits()
	f.Expect(f.count()).To(gomega.Equal(int32(9)))
}

func TestAVolumeThatTheNodeHasNoRoomForExceedsItsLimitIfTheDriverIsAskedForThat(t *testing.T) {
	exhausted, other := ptr.To(int32(codes.ResourceExhausted)), ptr.To(int32(codes.Internal))
	for _, c := range []struct {
		name    string
		period  *int64
		code    *int32
		limited bool
	}{
		{"an exhausted node", ptr.To[int64](3600), exhausted, true},
		{"another failure", ptr.To[int64](3600), other, false},
		{"an API server that stores no codes", ptr.To[int64](3600), nil, false},
		{"a driver that is not asked again", nil, exhausted, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, clock := newFixture(t), clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
			f.o.Clock = clock
			f.change(func(s *storagev1.CSIDriverSpec) {
				s.AttachRequired, s.NodeAllocatableUpdatePeriodSeconds = nil, c.period
			})
			f.Expect(f.client.Create(t.Context(), &storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: attachmentName(record{Driver: driverName, Handle: "h1"}, "n1")},
				Status:     storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no room", ErrorCode: c.code}},
			})).To(gomega.Succeed())
			f.driver.SetMaxVolumes(5)
			done := make(chan error, 1)
			go func() {
				_, err := f.Publish(t.Context(), persistent("u1"))
				done <- err
			}()
			f.Eventually(clock.HasWaiters).Should(gomega.BeTrue())
			f.Expect(done).NotTo(gomega.Receive(), "the attacher may succeed yet")
			clock.Step(attachTimeout)
			var err error
			f.Eventually(done).Should(gomega.Receive(&err))
			f.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("to be attached")))
			limit, count := (*LimitError)(nil), int32(7)
			if c.limited {
				count = 5 // at once, without waiting for the period
			}
			f.Expect(errors.As(err, &limit)).To(gomega.Equal(c.limited), "%v", err)
			f.Expect(f.count()).To(gomega.Equal(count))
		})
	}
}

func TestAnEntryThatTheAPIServerDoesNotLetChangeIsReplaced(t *testing.T) {
	f := newFixture(t)
	watching, ok := f.client.(client.WithWatch)
	f.Expect(ok).To(gomega.BeTrue())
	var sent []int // the number of entries
	f.o.Client = interceptor.NewClient(watching, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if node, ok := o.(*storagev1.CSINode); ok {
			sent = append(sent, len(node.Spec.Drivers))
			if len(sent) == 1 {
				return apierrors.NewInvalid(schema.GroupKind{Kind: "CSINode"}, node.Name, nil)
			}
		}
		return c.Patch(ctx, o, patch, opts...)
	}})
	d, err := f.drivers.get(driverName)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	d.node.MaxVolumesPerNode = 9
	f.Expect(f.publishNode(t.Context(), driverName, d.node)).To(gomega.Succeed())
	f.Expect(f.count()).To(gomega.Equal(int32(9)))
	f.Expect(sent).To(gomega.Equal([]int{1, 0, 1}))
}
