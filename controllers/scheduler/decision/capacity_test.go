package decision

import (
	"fmt"
	"strings"
	"testing"
)

func TestACapacityReportIsParsedOnce(t *testing.T) {
	s := NewSnapshot()
	s.SetNode(parseNode("a"))
	s.SetDriver(parseDriver("d"))
	s.SetClass(parseClass("fast provisioner=d waits"))
	for i := range 100 {
		s.SetCapacity(parseCapacity(fmt.Sprintf("report%d class=fast size=10Gi on=other", i)))
	}
	claim, n := parseClaim("data class=fast size=5Gi"), s.nodes.get("a")
	if got := testing.AllocsPerRun(10, func() { s.storage.sufficient(claim, n) }); got > 10 {
		t.Errorf("a check of 100 reports makes %v allocations", got)
	}
}

func TestScoresUseThePlacementOfTheFilter(t *testing.T) {
	s := NewSnapshot()
	p := DefaultProfile("")
	p.VolumeShape = DefaultCapacityShape()
	s.SetProfiles(p)
	for _, line := range []string{"node a", "class fast waits", "volume v class=fast size=10Gi", "claim data class=fast size=5Gi"} {
		name, rest, _ := strings.Cut(line, " ")
		s.run(name, rest)
	}
	r := newRequest(parsePod("db claim=data"), p)
	nodes := s.pass(r)
	if len(nodes) != 1 {
		t.Fatalf("%d nodes pass, want 1", len(nodes))
	}
	s.storage.byClass = nil // no volume can be found again
	scores := make([]int64, 1)
	if !volumesByShape(s, r, nodes, scores) || scores[0] != 50 {
		t.Errorf("the score is %d, want 50", scores[0])
	}
}
