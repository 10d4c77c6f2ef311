package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimePatience is how long the runtime may fail to answer before the node
// becomes not ready.
const runtimePatience = 30 * time.Second

// runtimeTimeout bounds one request to the runtime.
const runtimeTimeout = 5 * time.Second

// runtimeHealth is the last known state of the container runtime.
type runtimeHealth struct {
	started time.Time
	// answered is when the runtime last reported that it is ready; zero for never.
	answered time.Time
	status   RuntimeStatus
	problem  error
	network  error
}

// health is the effect of the runtime's state on the node.
type health struct {
	status   RuntimeStatus
	problems []error
}

// update requests the runtime's status.
func (r *runtimeHealth) update(ctx context.Context, o *Options) health {
	if o.Runtime == nil {
		return health{}
	}
	limited, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	if status, err := o.Runtime(limited); err == nil {
		r.status = status
		r.problem = notTrue("container runtime not ready", status.Conditions, runtimeapi.RuntimeReady)
		r.network = notTrue("container runtime network not ready", status.Conditions, runtimeapi.NetworkReady)
		if r.problem == nil {
			r.answered = o.Clock.Now()
		}
	}
	h := health{status: r.status}
	switch {
	case r.answered.IsZero():
		h.problems = append(h.problems, errors.New("container runtime status check may not have completed yet"))
	case o.Clock.Since(r.answered) >= runtimePatience:
		h.problems = append(h.problems, errors.New("container runtime is down"))
	}
	if r.problem != nil {
		h.problems = append(h.problems, r.problem)
	}
	if r.network != nil {
		h.problems = append(h.problems, r.network)
	}
	return h
}

// notTrue returns an error if a runtime condition is not true.
func notTrue(complaint string, conditions []*runtimeapi.RuntimeCondition, kind string) error {
	for _, c := range conditions {
		if c.GetType() == kind {
			if c.GetStatus() {
				return nil
			}
			return fmt.Errorf("%s: %s=%t reason:%s message:%s", complaint, c.GetType(), c.GetStatus(), c.GetReason(), c.GetMessage())
		}
	}
	return fmt.Errorf("%s: the runtime does not report %s", complaint, kind)
}

// pressureCondition is the condition of a resource that may run out.
type pressureCondition struct {
	kind corev1.NodeConditionType
	// on and off are the reason, the message and the event reason of either state.
	on, off [3]string
	is      func(Pressure) bool
}

var pressureConditions = []pressureCondition{{
	kind: corev1.NodeMemoryPressure,
	on:   [3]string{"KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"},
	off:  [3]string{"KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"},
	is:   func(p Pressure) bool { return p.Memory },
}, {
	kind: corev1.NodeDiskPressure,
	on:   [3]string{"KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"},
	off:  [3]string{"KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"},
	is:   func(p Pressure) bool { return p.Disk },
}, {
	kind: corev1.NodePIDPressure,
	on:   [3]string{"KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"},
	off:  [3]string{"KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"},
	is:   func(p Pressure) bool { return p.PID },
}}

// The conditions of what a ready node may lack. They are True while it does, False when it
// no longer does, and missing if it never did.
const (
	// ServiceProxyUnavailable means that connections to the addresses of services do not
	// reach their endpoints, or not all of them.
	ServiceProxyUnavailable corev1.NodeConditionType = "ServiceProxyUnavailable"
	// ServiceDNSUnavailable means that the node's own server does not answer questions
	// about names of services.
	ServiceDNSUnavailable corev1.NodeConditionType = "ServiceDNSUnavailable"
)

// LackConditions returns the conditions of what a ready node may lack.
func LackConditions() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{ServiceProxyUnavailable, ServiceDNSUnavailable}
}

// Lack is something that a ready node does without.
type Lack struct {
	// Kind is one of LackConditions.
	Kind            corev1.NodeConditionType
	Reason, Message string
}

// setLacks sets the conditions of what the node lacks.
func setLacks(s *corev1.NodeStatus, lacks []Lack, now metav1.Time) {
	for _, kind := range LackConditions() {
		at := slices.IndexFunc(lacks, func(l Lack) bool { return l.Kind == kind })
		switch {
		case at >= 0:
			setCondition(s, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: lacks[at].Reason, Message: lacks[at].Message}, now)
		case condition(s.Conditions, kind) != nil:
			setCondition(s, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: strings.TrimSuffix(string(kind), "Unavailable") + "Available", Message: "nothing is missing any more"}, now)
		}
	}
}

// setConditions sets the node's conditions, Ready last, and returns the reasons of
// the events about changes.
func (n *Node) setConditions(s *corev1.NodeStatus, problems []error) (events []string) {
	var pressure Pressure
	if n.o.Pressure != nil {
		pressure = n.o.Pressure()
	}
	now := metav1.NewTime(n.o.Clock.Now()).Rfc3339Copy()
	for _, p := range pressureConditions {
		status, says := corev1.ConditionFalse, p.off
		if p.is(pressure) {
			status, says = corev1.ConditionTrue, p.on
		}
		if setCondition(s, corev1.NodeCondition{Type: p.kind, Status: status, Reason: says[0], Message: says[1]}, now) {
			events = append(events, says[2])
		}
	}
	var lacks []Lack
	if n.o.Lacks != nil {
		lacks = n.o.Lacks()
	}
	setLacks(s, lacks, now)
	if n.o.Problems != nil {
		problems = append(problems, n.o.Problems()...)
	}
	if missing := missing(s.Capacity); missing != "" {
		problems = append(problems, errors.New("missing node capacity for resources: "+missing))
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	event := "NodeReady"
	if err := utilerrors.NewAggregate(problems); err != nil {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "KubeletNotReady", err.Error()
		event = "NodeNotReady"
	}
	// A new node has no changes to record.
	if before := condition(s.Conditions, corev1.NodeReady); setCondition(s, ready, now) && before != nil {
		events = append(events, event)
	}
	return events
}

func missing(capacity corev1.ResourceList) string {
	var names []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage} {
		if _, ok := capacity[name]; !ok {
			names = append(names, string(name))
		}
	}
	return strings.Join(names, ", ")
}

func condition(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// setCondition sets one condition and reports whether its status has changed.
func setCondition(s *corev1.NodeStatus, c corev1.NodeCondition, now metav1.Time) bool {
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	before := condition(s.Conditions, c.Type)
	if before == nil {
		s.Conditions = append(s.Conditions, c)
		return true
	}
	changed := before.Status != c.Status
	if !changed {
		c.LastTransitionTime = before.LastTransitionTime
	}
	*before = c
	return changed
}
