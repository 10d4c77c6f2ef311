package csi

import (
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
