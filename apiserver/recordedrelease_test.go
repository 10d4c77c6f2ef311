package apiserver

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func undecided() *recordedRelease {
	return &recordedRelease{examining: make(chan struct{}), done: make(chan struct{})}
}

func TestAServerWaitsForTheExaminationOfWhatIsStored(t *testing.T) {
	for _, c := range []struct {
		name              string
		examining, serves bool // at the timeout, before it is decided
	}{
		{"etcd has not answered", false, true},
		{"the stored objects are read", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, served := undecided(), make(chan struct{})
				if c.examining {
					close(r.examining)
				}
				go func() {
					defer close(served)
					r.await(t.Context(), time.After(time.Second))
				}()
				serves := func() bool {
					synctest.Wait()
					select {
					case <-served:
						return true
					default:
						return false
					}
				}
				if serves() {
					t.Error("it serves before the timeout")
				}
				<-time.After(time.Minute)
				if got := serves(); got != c.serves {
					t.Errorf("it serves after the timeout: %v", got)
				}
				close(r.done)
				if !serves() {
					t.Error("it does not serve when it is decided")
				}
			})
		})
	}
}

func TestAServerIsNotReadyBeforeItMayServeWhatIsStored(t *testing.T) {
	r := undecided()
	if err := r.Check(nil); err == nil {
		t.Error("it is ready before it is decided")
	}
	close(r.done)
	if err := r.Check(nil); err != nil {
		t.Errorf("it may serve: %v", err)
	}
	r.refused = errors.New("it would lose a field")
	if err := r.Check(nil); !errors.Is(err, r.refused) {
		t.Errorf("it must not serve: %v", err)
	}
}
