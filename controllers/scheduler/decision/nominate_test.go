package decision

import "testing"

// Pods of one workload that are nominated at the same time share a class and an owner, which
// have to outlive each of them.
func TestAPlacedPodCountsAfterOthersOfItsWorkloadWereNominated(t *testing.T) {
	s := NewSnapshot()
	s.SetNode(parseNode("a"))
	s.SetNode(parseNode("b"))
	first, second := parsePod("web-1 {app=web} owner=ReplicaSet/web on=a"), parsePod("web-2 {app=web} owner=ReplicaSet/web on=a")
	s.Nominate(first, "a")
	s.Nominate(second, "a")
	s.Nominate(first, "")
	s.SetPod(first)
	s.Nominate(second, "")
	s.SetPod(second)
	if got := s.siblings(parsePod("web-3 {app=web} owner=ReplicaSet/web")).total; got != 2 {
		t.Errorf("%d pods of the replica set count, want 2", got)
	}
	for range 2 {
		if got := s.Decide(parsePod("db-1 {app=db} away={app=web}/host"), func(int) int { return 0 }).Node; got != "b" {
			t.Errorf("a pod that avoids those of the workload was placed on %q, want b", got)
		}
		s.RemovePod(first)
	}
	s.RemovePod(second)
	if len(s.classes) != 0 || len(s.owners) != 0 {
		t.Errorf("classes %v and owners %v are left of no pods", s.classes, s.owners)
	}
}
