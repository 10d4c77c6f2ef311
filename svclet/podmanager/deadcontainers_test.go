package podmanager

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/pod"
)

func TestTheOldestTerminatedContainersAreSuperfluous(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	observed := map[types.UID][]pod.Container{
		"a": {
			{ID: "a3", Name: "main", State: pod.Running, CreatedAt: at(30)},
			{ID: "a2", Name: "main", State: pod.Exited, CreatedAt: at(20)},
			{ID: "a1", Name: "main", State: pod.Exited, CreatedAt: at(10)},
		},
		"b": {
			{ID: "b2", Name: "main", State: pod.Exited, CreatedAt: at(2)},
			{ID: "b1", Name: "main", State: pod.Exited, CreatedAt: at(1)},
		},
	}
	for name, c := range map[string]struct {
		limit  int
		before time.Time
		want   map[types.UID]map[string]bool
	}{
		"below the limit":                 {4, at(100), map[types.UID]map[string]bool{}},
		"the oldest first":                {2, at(100), map[types.UID]map[string]bool{"a": {"a1": true}, "b": {"b1": true}}},
		"the newest attempts are kept":    {0, at(100), map[types.UID]map[string]bool{"a": {"a1": true, "a2": true}, "b": {"b1": true}}},
		"those that are younger are kept": {0, at(15), map[types.UID]map[string]bool{"a": {"a1": true}, "b": {"b1": true}}},
	} {
		if diff := cmp.Diff(c.want, superfluous(observed, c.limit, c.before)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestTheNewestAttemptIsKeptWhenTheClockWasSetBack(t *testing.T) {
	observed := map[types.UID][]pod.Container{"a": {
		{ID: "a2", Name: "main", Attempt: 2, State: pod.Exited, CreatedAt: time.Unix(10, 0)},
		{ID: "a1", Name: "main", Attempt: 1, State: pod.Exited, CreatedAt: time.Unix(20, 0)},
	}}
	want := map[types.UID]map[string]bool{"a": {"a1": true}}
	if diff := cmp.Diff(want, superfluous(observed, 0, time.Unix(100, 0))); diff != "" {
		t.Error(diff)
	}
}

func TestPodsThatHaveEndedLoseTheirTerminatedContainers(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	got := terminated([]pod.Container{
		{ID: "a2", Name: "main", State: pod.Exited, CreatedAt: at(20)},
		{ID: "a1", Name: "main", State: pod.Exited, CreatedAt: at(10)},
		{ID: "b1", Name: "side", State: pod.Unknown, CreatedAt: at(10)},
		{ID: "b2", Name: "side", State: pod.Exited, CreatedAt: at(30)}, // younger than the minimum age
	}, at(30))
	if diff := cmp.Diff(map[string]bool{"a1": true, "a2": true}, got); diff != "" {
		t.Error(diff)
	}
}
