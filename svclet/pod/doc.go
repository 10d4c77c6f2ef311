// Package pod owns the state machine that decides what happens to one pod on this
// node.
//
// The package is pure: it does no I/O and has no clock. A [Machine] receives the
// desired state ([Machine.Update], [Machine.Remove], [Machine.Reject]), what the
// runtime reports ([Machine.Observe]), the results of operations that it requested
// ([Machine.Done]) and of probes ([Machine.Probe]); [Machine.Next] then returns
// the operations to start, the probes to run, the pod's status, and when to call
// it again.
//
// The golden scripts in testdata document it by example.
//
// Its decisions are those of kubelet 1.36, with these differences:
//
//   - operations run in parallel where their order cannot be observed: the pull of
//     one container's image does not delay the failed liveness probe of another;
//   - CrashLoopBackOff survives a restart of the agent;
//   - a pod is complete when its regular containers are, even while a sidecar is
//     being restarted;
//   - a pod that must not run again and has lost its sandbox fails, even if some of
//     its containers were never started; kubelet leaves it Pending;
//   - an ephemeral container that the runtime has lost is not run again;
//   - the status of a container that the runtime no longer reports keeps its last
//     values and the container's ID;
//   - a container that is stopped without a restart because a probe failed gets the
//     probe's grace period, even if it is the last one of the pod.
package pod
