package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

func TestLockWaitsForTheHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := Lock(t.Context(), path, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	waiting, giveUp := context.WithCancel(t.Context())
	giveUp()
	if _, err := Lock(waiting, path, clock.RealClock{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a lock that is held is got: %v", err)
	}
	c := testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	type result struct {
		held *Held
		err  error
	}
	locked := make(chan result)
	go func() {
		h, err := Lock(t.Context(), path, c)
		locked <- result{h, err}
	}()
	for !c.HasWaiters() { // until it has found the lock held
		runtime.Gosched()
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	c.Step(lockRetry)
	next := <-locked
	if next.err != nil {
		t.Fatal(next.err)
	}
	next.held.Close()
}

func TestOpeningOrRemovingTheLockFileIsContention(t *testing.T) {
	for name, contend := range map[string]func(path string) error{
		"opens": func(path string) error {
			file, err := os.Open(path)
			if err == nil {
				err = file.Close()
			}
			return err
		},
		"removes": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			held, err := Lock(t.Context(), path, clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			contention, err := held.Watch()
			if err != nil {
				t.Fatal(err)
			}
			if err := contend(path); err != nil {
				t.Fatal(err)
			}
			if name == "removes" {
				held.Close() // a file that is open is not gone yet
			}
			if !contention.Wait(t.Context()) {
				t.Error("no contention is reported")
			}
		})
	}
}

func TestAWatchOfTheLockFileEndsWithItsContext(t *testing.T) {
	held, err := Lock(t.Context(), filepath.Join(t.TempDir(), "lock"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	contention, err := held.Watch()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() { ended <- contention.Wait(ctx) }()
	stop()
	if <-ended {
		t.Error("contention is reported")
	}
}
