// Package decision owns the scheduling decision: the node for a pod, or the reasons
// why it is unschedulable.
//
// It is pure: no client, no clock, no goroutine; only extenders, if SetExtenders has
// any, may have them, and the time of searches for devices is limited. A Snapshot is kept
// up to date object by object, and Decide decides about one pod:
//
//	s := decision.NewSnapshot()
//	s.SetNode(node)                  // for every event of a watch
//	s.SetPod(bound)                  // a pod that is bound or assumed
//	d := s.Decide(pod, rand.IntN)
//	if d.Node == "" {
//		report(d.Message())          // 0/3 nodes are available: 3 Insufficient cpu.
//		wait(pod, d.WokenBy)         // the events that may change the decision
//		p := s.Preempt(pod, &d, rand.IntN)
//		delete(p.Victims)            // pods of lower priority, for whose place it waits
//		s.Nominate(pod, p.Node)
//	}
//
// The policy is two lists: the filters in filters.go, which reject nodes, and the
// scores in scores.go, whose weighted sum ranks the feasible nodes. Preemption
// (preempt.go) has a third: the preferences among the nodes that it may free. Names, order, weights, reasons and arithmetic
// are those of kube-scheduler's default profile in Kubernetes 1.36. The scripts in
// testdata show each rule by example.
//
// # Cost
//
// A decision reads the nodes that it samples and the sums that the snapshot keeps
// for each node, never all pods. Pods that matter for affinity and spreading are
// counted by class (namespace and labels), and these counts are updated as pods are
// added and removed: see counts.go.
//
// # Limitations
//
// The migration of in-tree volumes to CSI drivers, and groups of pods, are ignored. Unlike
// in kube-scheduler, pod-level resources count in the score of free resources, and the
// anti-affinity of nominated pods always counts.
package decision
