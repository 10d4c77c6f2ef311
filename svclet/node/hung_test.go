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

// TestASlowListOfImagesDelaysNoStatusAndIsShown: it may take longer than a status waits.
func TestASlowListOfImagesDelaysNoStatusAndIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists atomic.Int32
		var failure error
		var takes time.Duration
		n, err := New(Options{Name: "n", MaxImages: 50, Images: func(context.Context) ([]corev1.ContainerImage, error) {
			size := lists.Add(1)
			time.Sleep(takes) // the clock of synctest
			return []corev1.ContainerImage{{SizeBytes: int64(size)}}, failure
		}})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(what string, requests int32, shown int64, waited time.Duration) {
			t.Helper()
			began, images := time.Now(), n.images.update(t.Context(), &n.o)
			size := int64(0)
			if len(images) > 0 {
				size = images[0].SizeBytes
			}
			if took := time.Since(began); lists.Load() != requests || size != shown || took != waited {
				t.Errorf("%s: %d requests, list %d is shown after %s; want %d, %d, %s", what, lists.Load(), size, took, requests, shown, waited)
			}
		}
		failure = errors.New("no such socket")
		expect("a runtime that does not run", 1, 0, 0)
		failure, takes = nil, 6*time.Second
		expect("the next status", 2, 0, imagesPatience)
		expect("while the request is in flight", 2, 0, 0)
		time.Sleep(takes)
		expect("after the answer", 2, 2, 0)
		time.Sleep(time.Minute - time.Nanosecond)
		expect("less than a minute later", 2, 2, 0)
		time.Sleep(time.Nanosecond)
		expect("a minute later", 3, 2, imagesPatience)
		time.Sleep(takes)
		expect("after that answer", 3, 3, 0)
	})
}
