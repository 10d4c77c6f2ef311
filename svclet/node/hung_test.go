package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestARuntimeThatHangsMakesTheNodeNotReady: each request of the runtime is given up after two
// minutes, that for its images, too.
func TestARuntimeThatHangsMakesTheNodeNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Bool
		request := func(ctx context.Context) error {
			if !hung.Load() {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		n, err := New(Options{
			Name: "n", Network: network{standard: "10.0.0.1"}, Machine: Machine{CPUs: 1, Memory: 1, Storage: 1}, MaxImages: 50,
			Runtime: func(ctx context.Context) (RuntimeStatus, error) { return status(true, true), request(ctx) },
			Images: func(ctx context.Context) ([]corev1.ContainerImage, error) {
				return []corev1.ContainerImage{{SizeBytes: 1}}, request(ctx)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); n.Run(ctx) }()
		time.Sleep(time.Minute - time.Second) // the clock of synctest
		if !n.ready() {
			t.Error("the node is not ready")
		}
		hung.Store(true)
		time.Sleep(time.Minute)
		if n.ready() {
			t.Error("the node is ready a minute after the runtime has hung")
		}
		if images := n.Object().Status.Images; len(images) != 1 {
			t.Errorf("the images are %v", images)
		}
		cancel()
		<-ended
	})
}

func TestImagesAreListedAgainAMinuteAfterTheRuntimeHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failure error
		hangs, lists := false, 0
		n, err := New(Options{Name: "n", MaxImages: 50, Images: func(ctx context.Context) ([]corev1.ContainerImage, error) {
			if lists++; hangs {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, failure
		}})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(what string, want int) {
			t.Helper()
			if n.images.update(t.Context(), &n.o); lists != want {
				t.Errorf("%s: asked %d times, want %d", what, lists, want)
			}
		}
		failure = errors.New("no such socket")
		expect("a runtime that does not run", 1)
		expect("a runtime that does not run yet", 2)
		hangs = true
		expect("a runtime that hangs", 3)
		time.Sleep(time.Minute - runtimeTimeout - time.Nanosecond) // the clock of synctest
		expect("less than a minute later", 3)
		time.Sleep(time.Nanosecond)
		hangs, failure = false, nil
		expect("a minute later", 4)
		expect("after an answer", 4)
	})
}
