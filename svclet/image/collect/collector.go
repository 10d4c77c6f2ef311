package collect

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/runtime"
)

// period is how often images are collected: kubelet's.
const period = 5 * time.Minute

// Runtime is the part of the container runtime's client that is used.
type Runtime interface {
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
}

// Containers lists the containers of the runtime, those that have ended too.
type Containers interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
}

// Options are what a collector works with.
type Options struct {
	Runtime    Runtime
	Containers Containers
	// FileSystem measures the images' file system.
	FileSystem func(ctx context.Context) (*statsapi.FsStats, error)
	// High and Low are percentages of the file system in use: at the high one images are
	// removed until the low one.
	High, Low int
	// Keep are names of images that are never removed, such as that of sandboxes.
	Keep []string
	// MinimumAge keeps new images; images that are unused for longer than MaximumAge are
	// removed, unless it is 0.
	MinimumAge, MaximumAge time.Duration
	// Event records an event about the node.
	Event func(kind, reason, message string)
	// Removed is called after images were removed.
	Removed func()
	// Collected is called after an image was removed, with the reason: "age" or "space". It
	// may be nil.
	Collected func(reason string)
	// Listed is called with the images' IDs before each collection, and when they were
	// listed; nil does nothing.
	Listed func(ids []string, at time.Time)
	Clock  clock.Clock
}

// Collector removes unused images.
type Collector struct {
	o Options

	mu      sync.Mutex // held while images are removed
	records Records
}

// New returns a collector that does nothing before [Collector.Run].
func New(o Options) *Collector { return &Collector{o: o} }

// Run collects images until ctx is done.
func (c *Collector) Run(ctx context.Context) {
	for {
		if err := c.collect(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to collect unused images")
			c.o.Event(corev1.EventTypeWarning, "ImageGCFailed", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-c.o.Clock.After(period):
		}
	}
}

// RemoveUnused removes all images that no container uses, but for those that are younger
// than the minimum age, and reports whether it has removed any.
func (c *Collector) RemoveUnused(ctx context.Context) (removed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.update(ctx); err != nil {
		return false, err
	}
	freed, err := c.remove(ctx, forSpace, math.MaxInt64, c.records.Unused(c.o.Clock.Now(), c.o.MinimumAge))
	return freed > 0, err
}

// collect removes the images that are too old, and those that fill the disk.
func (c *Collector) collect(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.update(ctx); err != nil {
		return err
	}
	var errs []error
	if c.o.MaximumAge > 0 {
		_, err := c.remove(ctx, forAge, math.MaxInt64, c.records.Older(c.o.Clock.Now(), c.o.MaximumAge))
		errs = append(errs, err)
	}
	if c.o.High >= 100 {
		return errors.Join(errs...)
	}
	fs, err := c.o.FileSystem(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if fs == nil || fs.AvailableBytes == nil || fs.CapacityBytes == nil {
		return errors.Join(errs...)
	}
	available, capacity := int64(*fs.AvailableBytes), int64(*fs.CapacityBytes) //nolint:gosec // no disk overflows int64
	excess := Excess(available, capacity, c.o.High, c.o.Low)
	if excess == 0 {
		return errors.Join(errs...)
	}
	klog.FromContext(ctx).Info("Disk usage on image filesystem is over the high threshold, trying to free bytes down to the low threshold",
		"highThreshold", c.o.High, "amountToFree", excess, "lowThreshold", c.o.Low)
	freed, err := c.remove(ctx, forSpace, excess, c.records.Unused(c.o.Clock.Now(), c.o.MinimumAge))
	if errs = append(errs, err); freed < excess {
		message := fmt.Sprintf("Failed to garbage collect required amount of images. Attempted to free %d bytes, but only found %d bytes eligible to free.", excess, freed)
		c.o.Event(corev1.EventTypeWarning, "FreeDiskSpaceFailed", message)
	}
	return errors.Join(errs...)
}

// update reads the images and their use.
func (c *Collector) update(ctx context.Context) error {
	began := c.o.Clock.Now()
	listed, err := c.o.Runtime.ListImages(ctx, nil)
	if err != nil {
		return err
	}
	containers, err := c.o.Containers.ListContainers(ctx, nil)
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	names := map[string]string{} // IDs by ID, tag and digest
	images, ids := make([]Image, len(listed)), make([]string, len(listed))
	for i, image := range listed {
		images[i] = Image{ID: image.Id, Size: int64(image.Size), Pinned: image.Pinned} //nolint:gosec // no image overflows int64
		names[image.Id], ids[i] = image.Id, image.Id
		for _, name := range append(image.RepoTags, image.RepoDigests...) {
			names[name] = image.Id
		}
	}
	used := map[string]bool{}
	for _, container := range containers {
		mounted := strings.Split(container.GetAnnotations()[runtime.ImagesAnnotation], ",")
		for _, name := range append(mounted, container.ImageRef, container.ImageId, container.GetImage().GetImage()) {
			if id, known := names[name]; known {
				used[id] = true
			}
		}
	}
	for _, name := range c.o.Keep {
		used[names[name]] = true
	}
	c.records.Update(c.o.Clock.Now(), images, used)
	if c.o.Listed != nil {
		c.o.Listed(ids, began)
	}
	return nil
}

// The reasons for which images are removed: kubelet's.
const (
	forAge   = "age"
	forSpace = "space"
)

// remove removes images in their order until it has freed an amount in bytes, and returns the
// size of those that it has removed. It continues after errors.
func (c *Collector) remove(ctx context.Context, reason string, amount int64, images []Image) (freed int64, err error) {
	var errs []error
	for _, image := range images {
		if freed >= amount {
			break
		}
		klog.FromContext(ctx).Info("Removing image to free bytes", "imageID", image.ID, "size", image.Size)
		if err := c.o.Runtime.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: image.ID}); err != nil {
			errs = append(errs, err)
			continue
		}
		c.records.Removed(image.ID)
		freed += image.Size
		if c.o.Collected != nil {
			c.o.Collected(reason)
		}
	}
	if freed > 0 && c.o.Removed != nil {
		c.o.Removed()
	}
	return freed, errors.Join(errs...)
}
