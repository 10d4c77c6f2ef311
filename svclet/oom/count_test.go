package oom

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestKillsAreCountedByContainerAsLongAsItsPodIsThere(t *testing.T) {
	var containers []Container
	c := NewCounter(func() []Container { return containers })
	expect := func(when, want string) {
		t.Helper()
		if want != "" {
			want = "# HELP container_oom_events_total Count of out of memory events observed for the container\n# TYPE container_oom_events_total counter\n" + want
		}
		if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	app := Container{Pod: "u", Namespace: "ns", PodName: "web", Name: "app", ID: "a0"}
	log := Container{Pod: "u", Namespace: "ns", PodName: "web", Name: "log", ID: "l0"}
	c.Watch(true)
	c.Add("u", "a0") // before its pod has been observed
	containers = []Container{app, log}
	c.Add("u", "a0")
	c.Add("v", "other") // not a pod of this node
	expect("two of one container", `container_oom_events_total{container="app",namespace="ns",pod="web"} 2
container_oom_events_total{container="log",namespace="ns",pod="web"} 0
`)
	restarted := app
	restarted.ID = "a1"
	containers = []Container{restarted, app, log}
	c.Add("u", "a1")
	containers = []Container{restarted, log} // the old instance has been removed
	expect("after a restart", `container_oom_events_total{container="app",namespace="ns",pod="web"} 3
container_oom_events_total{container="log",namespace="ns",pod="web"} 0
`)
	successor := app
	successor.Pod, successor.ID = "w", "b0"
	containers = append(containers, successor)
	c.Add("w", "b0")
	expect("a successor of the same name", `container_oom_events_total{container="app",namespace="ns",pod="web"} 4
container_oom_events_total{container="log",namespace="ns",pod="web"} 0
`)
	containers = []Container{successor}
	expect("the first pod is gone", `container_oom_events_total{container="app",namespace="ns",pod="web"} 1
`)
	if len(c.counts) != 1 || len(c.unknown["v"]) != 0 {
		t.Errorf("left: %v, %v", c.counts, c.unknown)
	}
	c.Watch(false)
	expect("the log is not read any more", "")
}
