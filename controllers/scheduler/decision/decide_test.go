package decision

import (
	"fmt"
	"slices"
	"testing"
)

func TestSearchEndsWhenEnoughNodesAreFound(t *testing.T) {
	for nodes, want := range map[int]int{
		1: 1, 99: 99, // all of a small cluster
		100: 100, 200: 100, // never fewer than 100
		1000: 420, 5000: 500, // 50 % and falling
		10000: 500, // 5 % at least
	} {
		if got := enough(nodes, 0); got != want {
			t.Errorf("%d nodes: got %d, want %d", nodes, got, want)
		}
	}
}

func TestSearchesContinueWhereThePreviousEnded(t *testing.T) {
	s := NewSnapshot()
	for i := range 1000 {
		s.SetNode(parseNode(fmt.Sprintf("node-%03d", i)))
	}
	seen := map[string]bool{}
	for range 3 {
		d := s.Decide(parsePod("web"), nil) // the first of those found: all are the same
		if d.Feasible != 420 {
			t.Errorf("found %d nodes", d.Feasible)
		}
		seen[d.Node] = true
	}
	for _, want := range []string{"node-000", "node-420", "node-840"} {
		if !seen[want] {
			t.Errorf("no search began at %s: %v", want, seen)
		}
	}
}

func TestSearchesCheckNodesOfAllZones(t *testing.T) {
	s := NewSnapshot()
	for i := range 300 {
		s.SetNode(parseNode(fmt.Sprintf("node-%03d zone=z%d", i, i/100)))
	}
	zones := map[string]int{}
	var d Decision
	for _, n := range s.feasible(newRequest(parsePod("web"), DefaultProfile("")), s.nodes.list(), policy{}, &d) {
		zones[n.zoneLabel.value]++
	}
	if zones["z0"] != zones["z1"] || zones["z1"] != zones["z2"] {
		t.Errorf("got %v", zones)
	}
}

func TestReasonsAreOfAllNodes(t *testing.T) {
	s := NewSnapshot()
	for i := range 1000 {
		s.SetNode(parseNode(fmt.Sprintf("node-%03d", i)))
	}
	d := s.Decide(parsePod("web cpu=9"), nil)
	if want := "0/1000 nodes are available: 1000 Insufficient cpu."; d.Message() != want {
		t.Errorf("got %s", d.Message())
	}
}

func TestTiesAreBrokenByChoice(t *testing.T) {
	s := NewSnapshot()
	for _, name := range []string{"a", "b", "c"} {
		s.SetNode(parseNode(name))
	}
	s.SetPod(parsePod("busy on=b cpu=1"))
	for choice, want := range []string{"a", "c"} {
		got := s.Decide(parsePod("web"), func(n int) int {
			if n != 2 {
				t.Errorf("choice among %d", n)
			}
			return choice
		})
		if got.Node != want {
			t.Errorf("choice %d: got %s, want %s", choice, got.Node, want)
		}
	}
}

func TestEventsAfterWhichARejectedPodIsRetried(t *testing.T) {
	for words, want := range map[string]struct {
		filters []string
		wokenBy Event
	}{
		"cpu=9":            {[]string{"NodeResourcesFit"}, NodeAdded | NodeAllocatable | PodGone | PodShrunk | OwnClassChanged},
		"select={x=y}":     {[]string{"NodeAffinity"}, NodeAdded | NodeLabels},
		"in=gone":          {[]string{"NodeAffinity"}, NodeAdded | NodeLabels},
		"claim=data":       {[]string{"VolumeRestrictions"}, NodeAdded | PodGone | ClaimChanged},
		"near={a=b}/host":  {[]string{"InterPodAffinity"}, NodeAdded | NodeLabels | PodBound | PodGone | PodLabels | NamespaceChanged},
		"gated":            {nil, 0},
		"restarts-all":     {[]string{"NodeDeclaredFeatures"}, NodeAdded | NodeFeatures},
		"device=gpu cpu=9": {[]string{"DynamicResources"}, NodeAdded | NodeLabels | NodeAllocatable | DevicesChanged},
	} {
		s := NewSnapshot()
		s.SetNode(parseNode("a"))
		d := s.Decide(parsePod("web "+words), nil)
		if !slices.Equal(d.Filters, want.filters) || d.WokenBy != want.wokenBy {
			t.Errorf("%s: got %v %b, want %v", words, d.Filters, d.WokenBy, want)
		}
	}
	if d := NewSnapshot().Decide(parsePod("web"), nil); d.WokenBy != NodeAdded {
		t.Errorf("no nodes: got %b", d.WokenBy)
	}
}

// TestUnusedCountsAreDropped: a snapshot must not keep the selectors of deleted
// workloads.
func TestUnusedCountsAreDropped(t *testing.T) {
	s := NewSnapshot()
	s.SetNode(parseNode("a"))
	s.SetPod(parsePod("first on=a {app=web}"))
	s.Decide(parsePod("web away={app=web}/host"), nil)
	for range 2 * keepCounts {
		s.Decide(parsePod("web away={app=db}/host"), nil)
	}
	if len(s.counts.byKey) != 1 || len(s.counts.byNamespace["default"]) != 1 {
		t.Errorf("%d counts left", len(s.counts.byKey))
	}
	if d := s.Decide(parsePod("web away={app=web}/host"), nil); d.Node != "" {
		t.Error("a count that was dropped is wrong when it is computed again")
	}
}
