package decision

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNodeEvents(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string
		want          Event
	}{
		"added":             {"", "a", NodeAdded},
		"removed":           {"a", "", NodeRemoved},
		"heartbeat":         {"a", "a", 0},
		"label":             {"a", "a {disk=ssd}", NodeLabels},
		"cordoned":          {"a", "a cordoned", NodeTaints},
		"tainted":           {"a", "a taint=x=:NoSchedule", NodeTaints},
		"larger":            {"a cpu=1", "a cpu=2", NodeAllocatable},
		"several":           {"a", "a zone=z1 cpu=9", NodeLabels | NodeAllocatable},
		"declares more":     {"a", "a declares=X", NodeFeatures},
		"only more images":  {"a", "a image=x:1@1Mi", 0},
		"written otherwise": {"a cpu=1", "a cpu=1000m", 0},
	} {
		var before, after *corev1.Node
		if test.before != "" {
			before = parseNode(test.before)
		}
		if test.after != "" {
			after = parseNode(test.after)
		}
		if got := NodeEvents(before, after); got != test.want {
			t.Errorf("%s: got %b, want %b", name, got, test.want)
		}
	}
}

func TestPodEvents(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string
		want          Event
	}{
		"created without a node": {"", "p", 0},
		"bound":                  {"p", "p on=a", PodBound},
		"deleted":                {"p on=a", "", PodGone},
		"deleted without a node": {"p", "", 0},
		"ended":                  {"p on=a", "p on=a ended", PodGone},
		"its deletion begins":    {"p on=a", "p on=a deleting", PodLabels},
		"labels":                 {"p on=a", "p on=a {app=web}", PodLabels},
		"labels without a node":  {"p", "p {app=web}", 0},
		"nothing":                {"p on=a cpu=1", "p on=a cpu=1", 0},
		"shrunk":                 {"p on=a cpu=2", "p on=a cpu=1", PodShrunk},
		"grown":                  {"p on=a cpu=1", "p on=a cpu=2", 0},
		"shrunk and grown":       {"p on=a cpu=2 memory=1Gi", "p on=a cpu=3 memory=1Mi", PodShrunk},
	} {
		var before, after *corev1.Pod
		if test.before != "" {
			before = parsePod(test.before)
		}
		if test.after != "" {
			after = parsePod(test.after)
		}
		if got := PodEvents(before, after); got != test.want {
			t.Errorf("%s: got %b, want %b", name, got, test.want)
		}
	}
}
