package image

import (
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestTheStatusOfANodeShowsItsLargestImages(t *testing.T) {
	images := []*runtimeapi.Image{
		{Id: "a", Size: 10, RepoTags: []string{"a:1"}},
		{Id: "c", Size: 30, RepoTags: []string{"c:1", "c:2", "c:3", "c:4"}, RepoDigests: []string{"c@1", "c@2"}},
		{Id: "b", Size: 10, RepoDigests: []string{"b@1"}},
	}
	all := []corev1.ContainerImage{
		{Names: []string{"c@1", "c@2", "c:1", "c:2", "c:3"}, SizeBytes: 30},
		{Names: []string{"b@1"}, SizeBytes: 10},
		{Names: []string{"a:1"}, SizeBytes: 10},
	}
	for limit, want := range map[int][]corev1.ContainerImage{-1: all, 0: {}, 2: all[:2], 3: all, 50: all} {
		if got := forStatus(images, limit); !reflect.DeepEqual(got, want) {
			t.Errorf("limit %d: %+v", limit, got)
		}
	}
	if images[0].Id != "a" {
		t.Error("the runtime's list was sorted in place")
	}
}

func TestTheImageListIsCachedUntilAPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry("app:1")
		m := New(Options{Runtime: r, Recorder: new(journal), MaxListed: -1})
		list := func(images, lists int) {
			t.Helper()
			got, err := m.List(t.Context())
			if err != nil || len(got) != images || r.lists != lists {
				t.Errorf("%d images after %d lists: %v", len(got), r.lists, err)
			}
		}
		list(1, 1)
		time.Sleep(29 * time.Second)
		list(1, 1)
		time.Sleep(time.Second)
		list(1, 2)
		p, c := podOf("p", "other", corev1.PullAlways)
		if _, _, err := m.Ensure(t.Context(), p, c, nil); err != nil {
			t.Fatal(err)
		}
		list(2, 3)
		list(2, 3)

		time.Sleep(time.Minute)
		r.inspect = errors.New("unavailable")
		if _, err := m.List(t.Context()); err == nil || err.Error() != "error getting image list: unavailable" {
			t.Errorf("got %v", err)
		}
	})
}

func TestPullDurationsAreLabelledWithTheImageSize(t *testing.T) {
	for size, want := range map[uint64]string{
		0: "N/A", 1: "0-10MB", 10 << 20: "0-10MB", 10<<20 + 1: "10MB-100MB", 2 << 30: "1GB-5GB", 1 << 40: "GT100GB",
	} {
		if got := sizeOf(size); got != want {
			t.Errorf("%d is %s, want %s", size, got, want)
		}
	}
	m := New(Options{})
	m.metrics.pulled(1, time.Second)
	for _, each := range m.Metrics() {
		if problems, err := testutil.CollectAndLint(each); err != nil || len(problems) > 0 {
			t.Errorf("%v %v", problems, err)
		}
	}
}
