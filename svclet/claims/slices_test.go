package claims

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onsi/gomega"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/plugins"
)

func TestTheResourceSlicesOfDriversThatAreGoneAreDeleted(t *testing.T) {
	f, clock, deleted := newFixture(t), clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), make(chan string)
	answers := make(chan error, 1)
	f.SetDefaultEventuallyTimeout(time.Minute)
	f.o.Clock, f.o.DeleteSlices = clock, func(_ context.Context, driver string) error {
		deleted <- driver
		return <-answers
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	defer func() { cancel(); <-done }()
	f.Expect(<-deleted).To(gomega.BeEmpty(), "at the start, of all drivers")
	answers <- errors.New("the API server is away")
	f.Eventually(clock.HasWaiters).Should(gomega.BeTrue())
	clock.Step(minSlicesRetry)
	f.Expect(<-deleted).To(gomega.BeEmpty(), "again")
	answers <- nil

	endpoint := func() plugins.Plugin {
		f.mu.Lock()
		defer f.mu.Unlock()
		return plugins.Plugin{Name: gpus, Endpoint: f.drivers[gpus][0].endpoint}
	}
	f.register(draapi.DRAPluginService)
	f.register(draapi.DRAPluginService)
	f.Deregister(t.Context(), endpoint())
	f.Expect(clock.HasWaiters()).To(gomega.BeFalse(), "there is another instance")
	f.Deregister(t.Context(), endpoint())
	clock.Step(slicesDelay - time.Second)
	f.register(draapi.DRAPluginService)
	f.Expect(clock.HasWaiters()).To(gomega.BeFalse(), "it has been updated in time")

	f.Deregister(t.Context(), endpoint())
	clock.Step(slicesDelay)
	f.Expect(<-deleted).To(gomega.Equal(gpus))
	answers <- nil
}

func TestAnInstanceThatIsUnreachableIsNotUsedWhileThereIsAnother(t *testing.T) {
	f := newFixture(t)
	first := f.register(draapi.DRAPluginService)
	f.Expect(f.Register(t.Context(), plugins.Plugin{Name: gpus, Endpoint: t.TempDir() + "/none", Versions: []string{draapi.DRAPluginService}})).To(gomega.Succeed())
	p := podOf("p", "a")
	f.claim("a", p)
	f.Expect(f.Prepare(t.Context(), p)).NotTo(gomega.Succeed(), "it is not known yet to be unreachable")
	f.Expect(f.Prepare(t.Context(), p)).To(gomega.Succeed())
	f.Expect(first.calls()).To(gomega.HaveLen(1))
}
