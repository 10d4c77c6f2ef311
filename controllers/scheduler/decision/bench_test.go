package decision

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// cluster makes a snapshot of nodes in three zones with some images, and pods of
// replica sets of ten, spread over the nodes.
func cluster(nodes, pods int) *Snapshot {
	s := NewSnapshot()
	for i := range nodes {
		s.SetNode(parseNode(fmt.Sprintf("node-%05d zone=z%d cpu=32 memory=128Gi image=app-%d:1@300Mi image=base:1@50Mi", i, i%3, i%50)))
	}
	for i := range pods {
		s.SetPod(parsePod(workload(i/10, fmt.Sprint("pod-", i)) + fmt.Sprintf(" on=node-%05d", i*7%nodes)))
	}
	return s
}

// workload is a pod of a replica set.
func workload(set int, name string) string {
	return fmt.Sprintf("%s ns=team-%d {app=app-%d,hash=%d} owner=ReplicaSet/set-%d cpu=100m memory=128Mi image=app-%d:1", name, set%20, set, set, set, set%50)
}

// BenchmarkDecide shows that a decision costs the same however many pods there
// are, and little more on large clusters.
func BenchmarkDecide(b *testing.B) {
	kinds := []struct{ name, words string }{
		{"bare", ""},
		{"plain", "owner"},
		{"selector", "owner select={kubernetes.io/arch=none}"},
		{"anti-affinity", "owner away={app=app-3}/host"},
		{"affinity", "owner near={app=app-3}/zone"},
		{"preferred", "owner away~100={app=app-3}/host"},
		{"spread-zone", "owner spread={app=app-3}/zone/1"},
		{"spread-host", "owner spread={app=app-3}/host/1"},
		{"full", "cpu=64"},
	}
	for _, size := range []struct{ nodes, pods int }{{1000, 0}, {1000, 30000}, {5000, 0}, {5000, 30000}} {
		s := cluster(size.nodes, size.pods)
		for _, kind := range kinds {
			var pod *corev1.Pod
			if words, owned := cutOwner(kind.words); owned {
				pod = parsePod(workload(3, "new") + words)
			} else {
				pod = parsePod("new cpu=100m memory=128Mi " + words)
			}
			b.Run(fmt.Sprintf("%dnodes/%dpods/%s", size.nodes, size.pods, kind.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					s.Decide(pod, nil)
				}
			})
		}
	}
}

func cutOwner(words string) (string, bool) {
	if len(words) >= 5 && words[:5] == "owner" {
		return words[5:], true
	}
	return words, false
}

// BenchmarkSchedule is a decision and what follows from it: the pod is assumed,
// confirmed by its watch event, and removed at last.
func BenchmarkSchedule(b *testing.B) {
	for _, pods := range []int{0, 30000} {
		s := cluster(1000, pods)
		b.Run(fmt.Sprintf("1000nodes/%dpods", pods), func(b *testing.B) {
			pod := parsePod(workload(3, "new"))
			b.ReportAllocs()
			for b.Loop() {
				assumed := *pod
				assumed.Spec.NodeName = s.Decide(pod, nil).Node
				s.SetPod(&assumed)
				s.SetPod(&assumed)
				s.RemovePod(&assumed)
			}
		})
	}
}

// BenchmarkNodeHeartbeat is an update of a node's status that changes nothing
// that matters.
func BenchmarkNodeHeartbeat(b *testing.B) {
	s := cluster(1000, 30000)
	n := parseNode("node-00001 zone=z1 cpu=32 memory=128Gi image=app-1:1@300Mi image=base:1@50Mi")
	b.ReportAllocs()
	for b.Loop() {
		s.SetNode(n)
	}
}
