package podmanager

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// StartResult returns which pods neither run nor have ended, each with the reason,
// and which have failed. Both are sorted. Before every source has delivered its
// pods, that is what is waited for.
func (t *Table) StartResult() (waiting []string, failed []error) {
	workers, blocked, ready := t.snapshot()
	if !ready {
		return []string{"not all sources have delivered their pods"}, nil
	}
	for _, p := range blocked {
		waiting = append(waiting, fmt.Sprintf("pod %s/%s waits for one of the same name", p.Namespace, p.Name))
	}
	for _, w := range workers {
		if w.IsOrphaned() {
			continue
		}
		p, status := w.Pod(), w.Status()
		name := "pod " + p.Namespace + "/" + p.Name
		switch wait, failure := startResult(&status); {
		case failure != "":
			failed = append(failed, errors.New(name+" has failed: "+failure))
		case wait != "":
			waiting = append(waiting, name+" does not run: "+wait)
		}
	}
	slices.Sort(waiting)
	slices.SortFunc(failed, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return waiting, failed
}

// startResult returns why a pod that does not run yet waits, or why it has failed.
// Both are empty if it runs or has succeeded.
func startResult(status *corev1.PodStatus) (wait, failure string) {
	switch status.Phase {
	case corev1.PodSucceeded:
		return "", ""
	case corev1.PodFailed:
		return "", explain(status.Reason, status.Message, "a container has ended with an error")
	}
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		state := c.State.Waiting
		switch {
		case state != nil && state.Reason == "CrashLoopBackOff":
			return "", "container " + c.Name + " keeps ending"
		case state != nil:
			return "container " + c.Name + ": " + explain(state.Reason, state.Message, "waiting"), ""
		}
	}
	if status.Phase != corev1.PodRunning {
		return "not started", ""
	}
	return "", ""
}

// explain joins a reason and a message. If both are empty it returns otherwise.
func explain(reason, message, otherwise string) string {
	parts := slices.DeleteFunc([]string{reason, message}, func(s string) bool { return s == "" })
	if len(parts) == 0 {
		return otherwise
	}
	return strings.Join(parts, ": ")
}
