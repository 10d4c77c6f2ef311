// Package pod decides what becomes of one pod on this node.
//
// It is pure: it starts nothing, asks nobody and has no clock. A [Machine] is
// told what is wanted ([Machine.Update], [Machine.Remove], [Machine.Reject]),
// what the runtime shows ([Machine.Observe]), what has become of the
// operations that it asked for ([Machine.Done]) and what probes have found
// ([Machine.Probe]); [Machine.Next] then says which operations to start, which
// probes to run, what the pod's status is, and when to ask again.
//
// The scripts in testdata are its manual.
//
// It decides as kubelet 1.36 does, except that
//   - operations run side by side where their order cannot be seen: a failed
//     liveness probe is not held up by the pull of another container's image;
//   - the back-off of crashing containers survives the agent's restart;
//   - a pod is done when its regular containers are, even while a sidecar is
//     being restarted;
//   - a pod that must not run again and has lost its sandbox fails, even if some
//     of its containers have never started; kubelet leaves it pending;
//   - an ephemeral container that the runtime has lost is not run again;
//   - the status of a container that the runtime cannot tell about stays as it
//     became, with its container's ID;
//   - a container that is to be stopped without a restart, because a probe has
//     failed, gets the probe's grace even if it is the pod's last.
//
// It does not resize containers in place, nor restart all containers of a pod
// by a rule of one (KEP-5532, beta).
package pod
