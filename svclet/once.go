package svclet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Of RunOnce: how often it looks, and for how long it waits, which is as long as
// kubelet did.
const (
	onceLook = 100 * time.Millisecond
	onceWait = 17 * time.Minute
)

// RunOnce starts the pods of files and of a URL, waits until each runs or has
// ended, and leaves them to themselves (--runonce). It is an error if one has
// failed, or does not run after 17 minutes.
func (a *Agent) RunOnce(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	for began := a.clock.Now(); ; {
		waiting, failed := a.outcome()
		late := a.clock.Since(began) > onceWait
		if len(waiting) == 0 || late {
			stop()
			for _, pod := range waiting {
				failed = append(failed, fmt.Errorf("%s after %s", pod, onceWait))
			}
			return errors.Join(append(failed, <-ended)...)
		}
		select {
		case err := <-ended:
			return err
		case <-a.clock.After(onceLook):
		}
	}
}

// outcome says which pods neither run nor have ended, and which have failed.
func (a *Agent) outcome() (waiting []string, failed []error) {
	p := a.pods
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready {
		return []string{"the sources of pods have not answered"}, nil
	}
	for _, next := range p.waiting {
		waiting = append(waiting, fmt.Sprintf("pod %s/%s waits for one of the same name", next.Namespace, next.Name))
	}
	for _, m := range p.workers {
		if m.orphan {
			continue
		}
		wanted, status := m.current()
		name := "pod " + wanted.Namespace + "/" + wanted.Name
		switch wait, problem := started(&status); {
		case problem != "":
			failed = append(failed, errors.New(name+" has failed: "+problem))
		case wait != "":
			waiting = append(waiting, name+" does not run: "+wait)
		}
	}
	slices.Sort(waiting)
	slices.SortFunc(failed, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return waiting, failed
}

// started says what a pod that does not run yet waits for, or what has become
// of it; both are empty if it runs or has succeeded.
func started(status *corev1.PodStatus) (wait, problem string) {
	switch status.Phase {
	case corev1.PodSucceeded:
		return "", ""
	case corev1.PodFailed:
		return "", told(status.Reason, status.Message, "a container has ended with an error")
	}
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		state := c.State.Waiting
		switch {
		case state != nil && state.Reason == "CrashLoopBackOff":
			return "", "container " + c.Name + " keeps ending"
		case state != nil:
			return "container " + c.Name + ": " + told(state.Reason, state.Message, "waiting"), ""
		}
	}
	if status.Phase != corev1.PodRunning {
		return "not started", ""
	}
	return "", ""
}

// told joins the parts of an explanation that there are.
func told(reason, message, otherwise string) string {
	parts := slices.DeleteFunc([]string{reason, message}, func(s string) bool { return s == "" })
	if len(parts) == 0 {
		return otherwise
	}
	return strings.Join(parts, ": ")
}
