package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"svc.dev/svc/apis/podspec"
)

// ownConditions are the conditions that only the node writes.
var ownConditions = []corev1.PodConditionType{
	corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady,
	corev1.PodReadyToStartContainers, corev1.PodResizeInProgress, corev1.PodResizePending, corev1.AllContainersRestarting,
}

func isOwn(t corev1.PodConditionType) bool { return slices.Contains(ownConditions, t) }

// isShared reports whether the node and other writers set the condition.
func isShared(t corev1.PodConditionType) bool { return t == corev1.DisruptionTarget }

// nextStatus returns the status that follows old: next, completed with what must be
// kept, and normalized. A terminal phase is final.
func nextStatus(pod *corev1.Pod, old, next *corev1.PodStatus, now time.Time) *corev1.PodStatus {
	s := next.DeepCopy()
	s.ObservedGeneration = max(pod.Generation, old.ObservedGeneration)
	if podspec.IsTerminal(old.Phase) && s.Phase != old.Phase {
		s.Phase, s.Reason, s.Message = old.Phase, old.Reason, old.Message
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if before := podspec.Condition(old, c.Type); before != nil && before.Status == c.Status && !before.LastTransitionTime.IsZero() {
			c.LastTransitionTime = before.LastTransitionTime
		} else if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = metav1.NewTime(now)
		}
	}
	if old.StartTime != nil && !old.StartTime.IsZero() {
		s.StartTime = old.StartTime.DeepCopy()
	} else if s.StartTime == nil || s.StartTime.IsZero() {
		s.StartTime = &metav1.Time{Time: now}
	}
	keepRestarts(old.InitContainerStatuses, s.InitContainerStatuses)
	keepRestarts(old.ContainerStatuses, s.ContainerStatuses)
	keepRestarts(old.EphemeralContainerStatuses, s.EphemeralContainerStatuses)
	normalize(pod, s)
	return s
}

// keepRestarts keeps restart counts from decreasing, which would happen after the
// runtime has lost earlier attempts.
func keepRestarts(old, next []corev1.ContainerStatus) {
	for i := range next {
		for j := range old {
			if old[j].Name == next[i].Name {
				next[i].RestartCount = max(next[i].RestartCount, old[j].RestartCount)
			}
		}
	}
}

// checkTransition returns an error if a status may not follow the old one: terminated
// containers that are not to be restarted must not run again.
func checkTransition(spec *corev1.PodSpec, old, next *corev1.PodStatus) error {
	if spec.RestartPolicy == corev1.RestartPolicyAlways || podspec.MayRestartAll(spec) {
		return nil
	}
	check := func(kind string, containers []corev1.Container, old, next []corev1.ContainerStatus) error {
		for i := range old {
			ended := old[i].State.Terminated
			if ended == nil || spec.RestartPolicy == corev1.RestartPolicyOnFailure && ended.ExitCode != 0 || hasOwnPolicy(containers, old[i].Name) {
				continue
			}
			for j := range next {
				if next[j].Name == old[i].Name && next[j].State.Terminated == nil {
					return fmt.Errorf("terminated %s %s attempted illegal transition to non-terminated state", kind, old[i].Name)
				}
			}
		}
		return nil
	}
	if err := check("container", spec.Containers, old.ContainerStatuses, next.ContainerStatuses); err != nil {
		return err
	}
	return check("init container", spec.InitContainers, old.InitContainerStatuses, next.InitContainerStatuses)
}

// hasOwnPolicy reports whether a container may be restarted whatever the pod's
// policy is: a sidecar, or a container with restart rules of its own.
func hasOwnPolicy(containers []corev1.Container, name string) bool {
	return slices.ContainsFunc(containers, func(c corev1.Container) bool {
		return c.Name == name && (c.RestartPolicy != nil || len(c.RestartPolicyRules) > 0)
	})
}

// maxMessages bounds the total of a pod's termination messages, in bytes.
const maxMessages = 12 << 10

// normalize converts a status to the form in which the API server returns it:
// times in seconds, containers in order.
func normalize(pod *corev1.Pod, s *corev1.PodStatus) {
	perContainer := maxMessages
	if n := len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + len(pod.Spec.EphemeralContainers); n > 0 {
		perContainer /= n
	}
	if s.StartTime != nil {
		*s.StartTime = s.StartTime.Rfc3339Copy()
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.LastProbeTime, c.LastTransitionTime = c.LastProbeTime.Rfc3339Copy(), c.LastTransitionTime.Rfc3339Copy()
	}
	for _, statuses := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range statuses {
			normalizeState(&statuses[i].State, perContainer)
			normalizeState(&statuses[i].LastTerminationState, perContainer)
		}
	}
	byName := func(a, b corev1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortStableFunc(s.ContainerStatuses, byName)
	slices.SortStableFunc(s.EphemeralContainerStatuses, byName)
	place := func(c corev1.ContainerStatus) int {
		i := slices.IndexFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name })
		if i < 0 {
			return len(pod.Spec.InitContainers)
		}
		return i
	}
	slices.SortStableFunc(s.InitContainerStatuses, func(a, b corev1.ContainerStatus) int { return cmp.Compare(place(a), place(b)) })
}

func normalizeState(s *corev1.ContainerState, maxMessage int) {
	if s.Running != nil {
		s.Running.StartedAt = s.Running.StartedAt.Rfc3339Copy()
	}
	if t := s.Terminated; t != nil {
		t.StartedAt, t.FinishedAt = t.StartedAt.Rfc3339Copy(), t.FinishedAt.Rfc3339Copy()
		if len(t.Message) > maxMessage {
			t.Message = t.Message[:maxMessage]
		}
	}
}

// merge returns the status for the API server: the node's, with the conditions of
// other writers. A terminal phase there is kept, unless restarted.
func merge(api, want *corev1.PodStatus, restarted bool) *corev1.PodStatus {
	s := want.DeepCopy()
	if !restarted && podspec.IsTerminal(api.Phase) && s.Phase != api.Phase {
		s.Phase, s.Reason, s.Message = api.Phase, api.Reason, api.Message
	}
	var kept []corev1.PodCondition
	for _, c := range api.Conditions {
		if !isOwn(c.Type) {
			kept = append(kept, c)
		}
	}
	for _, c := range s.Conditions {
		switch {
		case isOwn(c.Type):
			kept = append(kept, c)
		case isShared(c.Type) && podspec.IsTerminal(s.Phase):
			// The condition says why the pod has terminated: KEP-3329.
			kept = setCondition(kept, c)
		}
	}
	s.Conditions = kept
	if podspec.IsTerminal(s.Phase) {
		notReady(s, api)
	}
	s.ObservedGeneration = max(s.ObservedGeneration, api.ObservedGeneration)
	s.NominatedNodeName = api.NominatedNodeName
	s.ResourceClaimStatuses = api.ResourceClaimStatuses
	s.ExtendedResourceClaimStatus = api.ExtendedResourceClaimStatus
	s.NodeAllocatableResourceClaimStatuses = api.NodeAllocatableResourceClaimStatuses
	if s.QOSClass == "" {
		s.QOSClass = api.QOSClass
	}
	return s
}

func setCondition(conditions []corev1.PodCondition, c corev1.PodCondition) []corev1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == c.Type {
			conditions[i] = c
			return conditions
		}
	}
	return append(conditions, c)
}

// notReady sets the readiness of a terminated pod to false.
func notReady(s, api *corev1.PodStatus) {
	reason := "PodFailed"
	if s.Phase == corev1.PodSucceeded {
		reason = "PodCompleted"
	}
	for _, t := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		c := podspec.Condition(s, t)
		if c == nil || c.Status != corev1.ConditionTrue {
			continue
		}
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, ""
		if before := podspec.Condition(api, t); before != nil && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
	}
}

// same reports whether two statuses are equal in everything that the node writes.
// Conditions that differ only in their times are equal.
func same(a, b *corev1.PodStatus) bool {
	own := func(s *corev1.PodStatus) []corev1.PodCondition {
		var of []corev1.PodCondition
		for _, c := range s.Conditions {
			if isOwn(c.Type) || isShared(c.Type) {
				of = append(of, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
			}
		}
		slices.SortFunc(of, func(a, b corev1.PodCondition) int { return cmp.Compare(a.Type, b.Type) })
		return of
	}
	if !slices.Equal(own(a), own(b)) {
		return false
	}
	x, y := *a, *b
	x.Conditions, y.Conditions = nil, nil
	x.ResourceClaimStatuses, y.ResourceClaimStatuses = nil, nil
	x.ExtendedResourceClaimStatus, y.ExtendedResourceClaimStatus = nil, nil
	x.NodeAllocatableResourceClaimStatuses, y.NodeAllocatableResourceClaimStatuses = nil, nil
	return apiequality.Semantic.DeepEqual(&x, &y)
}

// patchOf returns the strategic merge patch from one status to the other.
func patchOf(uid types.UID, from, to *corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: *from})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: *to})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}
