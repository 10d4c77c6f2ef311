package collect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	testclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/runtime"
)

// host is a runtime with images of 10 bytes on a disk of 100 bytes.
type host struct {
	mu       sync.Mutex
	images   []*runtimeapi.Image
	used     []string // names of the images of containers
	mounted  string   // the images that a further container mounts
	stuck    string   // the image that cannot be removed
	capacity uint64
	events   []string
}

func newHost(names ...string) *host {
	h := &host{capacity: 100}
	for _, name := range names {
		h.images = append(h.images, &runtimeapi.Image{Id: "id-" + name, RepoTags: []string{name}, Size: 10})
	}
	return h
}

func (h *host) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.images), nil
}

func (h *host) RemoveImage(_ context.Context, image *runtimeapi.ImageSpec) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stuck != "" && image.Image == "id-"+h.stuck {
		return errors.New("the image is stuck")
	}
	h.images = slices.DeleteFunc(h.images, func(i *runtimeapi.Image) bool { return i.Id == image.Image })
	return nil
}

func (h *host) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	var all []*runtimeapi.Container
	for _, name := range h.used {
		all = append(all, &runtimeapi.Container{ImageRef: name})
	}
	return append(all, &runtimeapi.Container{Annotations: map[string]string{runtime.ImagesAnnotation: h.mounted}}), nil
}

func (h *host) fileSystem(context.Context) (*statsapi.FsStats, error) {
	available := h.capacity - uint64(10*len(h.left()))
	return &statsapi.FsStats{AvailableBytes: &available, CapacityBytes: &h.capacity}, nil
}

// left returns the names of the images, without spaces between them.
func (h *host) left() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all strings.Builder
	for _, image := range h.images {
		all.WriteString(image.RepoTags[0])
	}
	return all.String()
}

func (h *host) collector(c *testclock.FakeClock, change func(*Options)) *Collector {
	o := Options{
		Runtime: h, Containers: h, FileSystem: h.fileSystem, High: 80, Low: 60, MinimumAge: time.Minute, Clock: c,
		Event: func(_, reason, _ string) { h.events = append(h.events, reason) },
	}
	if change != nil {
		change(&o)
	}
	return New(o)
}

func TestImagesThatFillTheDiskAreRemovedUntilTheLowThreshold(t *testing.T) {
	for _, test := range []struct {
		rule, images string
		used         []string
		change       func(*Options)
		mounted      string
		pinned       int // index + 1
		want, event  string
	}{
		{rule: "below the high threshold all are kept", images: "abcdefg", want: "abcdefg"},
		{rule: "at the high threshold they are removed until the low one", images: "abcdefgh", want: "cdefgh"},
		{rule: "images in use are kept", images: "abcdefgh", used: []string{"a", "id-b"}, want: "abefgh"},
		{rule: "images that containers mount are kept", images: "abcdefgh", mounted: "id-a,id-b", want: "abefgh"},
		{rule: "pinned images are kept", images: "abcdefgh", pinned: 1, want: "adefgh"},
		{rule: "images that are needed are kept", images: "abcdefgh", change: func(o *Options) { o.Keep = []string{"a", "registry.example/none"} }, want: "adefgh"},
		{rule: "a high threshold of 100 turns it off", images: "abcdefghij", change: func(o *Options) { o.High = 100 }, want: "abcdefghij"},
		{rule: "what cannot be freed is told", images: "abcdefgh", used: []string{"a", "b", "c", "d", "e", "f", "g"}, want: "abcdefg", event: "FreeDiskSpaceFailed"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			h := newHost(strings.Split(test.images, "")...)
			h.used, h.mounted = test.used, test.mounted
			if test.pinned > 0 {
				h.images[test.pinned-1].Pinned = true
			}
			c := h.collector(testclock.NewFakeClock(time.Unix(1_800_000_000, 0)), test.change)
			if err := c.collect(t.Context()); err != nil {
				t.Fatal(err)
			}
			if h.left() != test.want || strings.Join(h.events, " ") != test.event {
				t.Errorf("%s are left, with events %q; want %s, %q", h.left(), h.events, test.want, test.event)
			}
		})
	}
}

func TestTheImageUsedLongestAgoIsRemovedFirst(t *testing.T) {
	h := newHost("a", "b", "c", "d", "e", "f", "g")
	clock := testclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	c := h.collector(clock, nil)
	for _, used := range [][]string{{"a", "b"}, {"a"}, nil} {
		h.used = used
		if err := c.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock.Step(time.Hour)
	}
	h.capacity = 70
	if err := c.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.left() != "abfg" {
		t.Errorf("%s are left, want abfg: a and b were used", h.left())
	}
}

func TestOthersAreRemovedForAnImageThatCannotBe(t *testing.T) {
	h := newHost("a", "b", "c", "d", "e", "f", "g", "h")
	h.stuck = "a"
	if err := h.collector(testclock.NewFakeClock(time.Unix(1_800_000_000, 0)), nil).collect(t.Context()); err == nil {
		t.Error("the failure is not reported")
	}
	if h.left() != "adefgh" || len(h.events) > 0 {
		t.Errorf("%s are left, with events %q; want adefgh", h.left(), h.events)
	}
}

func TestImagesRemovedForTheirAgeDoNotCountAsSpaceFreedLater(t *testing.T) {
	h := newHost()
	h.capacity = 200
	clock := testclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	c := h.collector(clock, func(o *Options) { o.MaximumAge = time.Hour })
	if err := c.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.images = newHost("a", "b", "c", "d", "e", "f", "g", "h", "i", "j").images
	for _, step := range []struct {
		used []string
		want string
	}{{nil, "abcdefghij"}, {[]string{"c", "d", "e", "f", "g", "h", "i", "j"}, "abcdefghij"}, {nil, "efghij"}} {
		if h.used = step.used; step.want == "efghij" {
			h.capacity = 100 // a and b are too old, and the others fill 80 %
		}
		if err := c.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if h.left() != step.want {
			t.Errorf("%s are left, want %s", h.left(), step.want)
		}
		clock.Step(40 * time.Minute)
	}
}

func TestNewImagesAreKeptForTheMinimumAge(t *testing.T) {
	h := newHost("a")
	clock := testclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	c := h.collector(clock, func(o *Options) { o.MinimumAge = time.Hour })
	h.used = []string{"a"}
	for _, step := range []struct {
		age  time.Duration
		want string
	}{{0, "abcdefgh"}, {59 * time.Minute, "abcdefgh"}, {time.Minute, "adefgh"}} {
		clock.Step(step.age)
		if step.age == 0 {
			if err := c.collect(t.Context()); err != nil { // sees a only
				t.Fatal(err)
			}
			h.images = newHost("a", "b", "c", "d", "e", "f", "g", "h").images
		}
		if err := c.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if h.left() != step.want {
			t.Errorf("after %s %s are left, want %s", step.age, h.left(), step.want)
		}
	}
}

func TestImagesThatAreUnusedForTheMaximumAgeAreRemoved(t *testing.T) {
	h := newHost("a", "b")
	h.used = []string{"a"}
	clock := testclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	var reasons []string
	c := h.collector(clock, func(o *Options) {
		o.MaximumAge, o.Collected = time.Hour, func(reason string) { reasons = append(reasons, reason) }
	})
	collect := func(want string) {
		t.Helper()
		if err := c.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if h.left() != want {
			t.Errorf("%s are left, want %s", h.left(), want)
		}
	}
	collect("ab")
	h.used = nil
	clock.Step(time.Hour)
	h.images = newHost("a", "b", "c").images
	collect("abc")
	clock.Step(time.Second)
	collect("c") // b was there before the agent: it counts from then
	clock.Step(time.Hour)
	collect("")
	if !slices.Equal(reasons, []string{"age", "age", "age"}) {
		t.Errorf("images are removed for %v", reasons)
	}
}

func TestUnderDiskPressureAllUnusedImagesAreRemoved(t *testing.T) {
	h := newHost("a", "b", "c")
	h.used = []string{"b"}
	c := h.collector(testclock.NewFakeClock(time.Unix(1_800_000_000, 0)), nil)
	for _, want := range []bool{true, false} {
		removed, err := c.RemoveUnused(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if h.left() != "b" || removed != want {
			t.Errorf("%s are left, and images were removed: %v, want %v", h.left(), removed, want)
		}
	}
}

func TestUnderDiskPressureNewImagesAreKeptForTheMinimumAge(t *testing.T) {
	h := newHost("a")
	clock := testclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	c := h.collector(clock, func(o *Options) { o.MinimumAge = time.Hour })
	if err := c.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Minute)
	h.images = newHost("a", "b").images
	for _, want := range []string{"b", "b", ""} { // a was there before the agent
		if _, err := c.RemoveUnused(t.Context()); err != nil {
			t.Fatal(err)
		}
		if h.left() != want {
			t.Errorf("%q are left, want %q", h.left(), want)
		}
		if h.left() == "b" {
			clock.Step(40 * time.Minute)
		}
	}
}
