package storage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestAllWhoAskForTheHealthOfEtcdShareOneCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
		begun, results := make(chan struct{}, 1), make(chan error)
		h := &health{clock: clock, check: func(context.Context) error {
			begun <- struct{}{}
			return <-results
		}}
		answers := make(chan error, 100)
		ask := func(ctx context.Context) { answers <- h.ask(ctx) }
		expect := func(n int, want error) {
			t.Helper()
			for range n {
				if err := <-answers; !errors.Is(err, want) {
					t.Errorf("the answer is %v, want %v", err, want)
				}
			}
		}

		leaves, leave := context.WithCancel(t.Context())
		go ask(leaves)
		<-begun
		for range 50 {
			go ask(t.Context())
		}
		synctest.Wait()
		leave()
		expect(1, context.Canceled)
		failure := errors.New("etcd is away")
		results <- failure
		expect(50, failure)

		// A failure is not kept, a success for a second.
		go ask(t.Context())
		<-begun
		results <- nil
		expect(1, nil)
		clock.SetTime(clock.Now().Add(checkValidity - 1))
		ask(t.Context())
		expect(1, nil)
		for _, passes := range []time.Duration{1, -time.Hour} {
			clock.SetTime(clock.Now().Add(passes))
			go ask(t.Context())
			<-begun
			results <- nil
			expect(1, nil)
		}
	})
}
