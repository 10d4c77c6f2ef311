package claims

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"google.golang.org/grpc/stats"
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

	pending := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.gone[gpus] != nil
	}
	leave := func(d *fakeDriver) { f.Deregister(t.Context(), plugins.Plugin{Name: gpus, Endpoint: d.path}) }
	first, second := f.register(draapi.DRAPluginService), f.register(draapi.DRAPluginService)
	f.Eventually(connected(f)).Should(gomega.Equal(2))
	leave(first)
	f.Expect(pending()).To(gomega.BeFalse(), "there is another instance")
	leave(second)
	f.Expect(pending()).To(gomega.BeTrue())
	clock.Step(slicesDelay - time.Second)
	third := f.register(draapi.DRAPluginService)
	f.Eventually(pending).Should(gomega.BeFalse(), "it has been updated in time")

	third.stop()
	f.Eventually(pending).Should(gomega.BeTrue(), "the connection is lost")
	f.serve(third, draapi.DRAPluginService)
	f.Eventually(pending).Should(gomega.BeFalse(), "it is reachable again")
	third.stop()
	f.Eventually(pending).Should(gomega.BeTrue())
	clock.Step(slicesDelay)
	f.Expect(<-deleted).To(gomega.Equal(gpus))
	answers <- nil
}

// connected returns a function that counts the instances that are connected.
func connected(f *fixture) func() int {
	return func() (n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, d := range f.drivers[gpus] {
			if d.connections > 0 {
				n++
			}
		}
		return n
	}
}

// gRPC may begin the next connection before it has told of the end of the one before.
func TestAnInstanceIsConnectedUntilItsLastConnectionEnds(t *testing.T) {
	f := newFixture(t)
	instance := f.register(draapi.DRAPluginService)
	f.SetDefaultEventuallyTimeout(time.Minute)
	f.Eventually(connected(f)).Should(gomega.Equal(1))
	f.mu.Lock()
	d := f.drivers[gpus][0]
	f.mu.Unlock()
	all := connections{manager: f.Manager, name: gpus, driver: d}
	all.HandleConn(t.Context(), &stats.ConnBegin{})
	all.HandleConn(t.Context(), &stats.ConnEnd{})
	f.Expect(f.isConnected(gpus)).To(gomega.BeTrue(), "the first connection goes on")
	instance.stop()
	f.Eventually(connected(f)).Should(gomega.Equal(0))
}

func TestAnInstanceThatIsUnreachableIsNotUsedWhileThereIsAnother(t *testing.T) {
	f := newFixture(t)
	first := f.register(draapi.DRAPluginService)
	f.Expect(f.Register(t.Context(), plugins.Plugin{Name: gpus, Endpoint: t.TempDir() + "/none", Versions: []string{draapi.DRAPluginService}})).To(gomega.Succeed())
	p := podOf("p", "a")
	f.claim("a", p)
	// It is not known at first to be unreachable.
	f.Eventually(func() error { return f.Prepare(t.Context(), p) }).WithTimeout(time.Minute).Should(gomega.Succeed())
	f.Expect(first.calls()).To(gomega.HaveLen(1))
}
