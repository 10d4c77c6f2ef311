// Package decision decides on which node a pod goes, or tells why on none.
//
// It is pure: no client, no clock, no goroutine. A Snapshot is told what there
// is, object by object, and Decide answers for one pod:
//
//	s := decision.NewSnapshot()
//	s.SetNode(node)                  // for every event of a watch
//	s.SetPod(bound)                  // a pod that has a node, or that is about to be bound
//	d := s.Decide(pod, rand.IntN)
//	if d.Node == "" {
//		report(d.Message())          // 0/3 nodes are available: 3 Insufficient cpu.
//		wait(pod, d.WokenBy)         // the events that may change the answer
//	}
//
// The policy is two lists that can be read: the filters in filters.go, each of
// which may rule nodes out, and the scores in scores.go, whose weighted sum
// ranks the nodes that remain. Names, order, weights, reasons and arithmetic
// are those of kube-scheduler's default profile in Kubernetes 1.36. The scripts in
// testdata tell the rules by example.
//
// # Cost
//
// A decision looks at the nodes it samples and at sums that the snapshot keeps
// for each node; it never looks at all pods. What a decision needs to know about
// other pods (affinity, spreading) is counted by class of pod (namespace and
// labels), and these counts are kept up to date as pods come and go: see
// counts.go.
//
// # What is left out
//
// There is no preemption. Pods with resource claims are refused, since no
// devices are allocated. The storage capacity that CSI drivers report, volume
// attachments of pods that have gone, and the migration of in-tree volumes to
// CSI drivers are not looked at. Where kube-scheduler leaves the resources of a
// pod as a whole out of the score of free resources, they count here.
package decision
