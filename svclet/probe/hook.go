package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/pod"
)

// HookKind is the kind of a lifecycle hook.
type HookKind string

// The lifecycle hooks of a container.
const (
	PostStart HookKind = "PostStart"
	PreStop   HookKind = "PreStop"
)

// Hook runs the hook of a container, if it has one, until ctx is done. podIP is
// the same as for [Manager.Sync].
//
// The error's text is the message in the status of a container whose postStart
// hook failed. The event has fewer details, because more users can read it. If ctx
// is done there is no event, and the error wraps the context's.
func (m *Manager) Hook(ctx context.Context, kind HookKind, p *corev1.Pod, c *corev1.Container, containerID, podIP string) error {
	handler := hookOf(c, kind)
	if handler == nil {
		return nil
	}
	err := m.runHook(ctx, target{pod: p, container: c, containerID: containerID, ip: podIP}, handler)
	if err == nil {
		return nil
	}
	klog.V(1).InfoS("Lifecycle hook failed", "pod", klog.KObj(p), "container", c.Name, "hook", kind, "err", err)
	if ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", err, ctx.Err())
	}
	m.options.Recorder.Event(p, pod.Event{
		Type:      corev1.EventTypeWarning,
		Reason:    fmt.Sprintf("Failed%sHook", kind),
		Message:   fmt.Sprintf("%sHook failed", kind),
		Container: c.Name,
	})
	return err
}

func hookOf(c *corev1.Container, kind HookKind) *corev1.LifecycleHandler {
	switch {
	case c.Lifecycle == nil:
		return nil
	case kind == PostStart:
		return c.Lifecycle.PostStart
	default:
		return c.Lifecycle.PreStop
	}
}

func (m *Manager) runHook(ctx context.Context, t target, handler *corev1.LifecycleHandler) error {
	failed := func(what string, detail any, err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s lifecycle hook (%v) for Container %q in Pod %q failed - error: %w", what, detail, t.container.Name, nameOf(t.pod), err)
	}
	switch {
	case handler.Exec != nil:
		return failed("Exec", handler.Exec.Command, m.hookExec(ctx, t, handler.Exec.Command))
	case handler.HTTPGet != nil:
		return failed("HTTP", handler.HTTPGet.Path, m.hookHTTP(ctx, t, handler.HTTPGet))
	case handler.Sleep != nil:
		return failed("Sleep", handler.Sleep.Seconds, m.hookSleep(ctx, handler.Sleep))
	default:
		// The type has a TCP handler, but hooks never supported it.
		return fmt.Errorf("Cannot run handler: invalid handler: %v", handler) //nolint:staticcheck // The message is kubelet's.
	}
}

func (m *Manager) hookExec(ctx context.Context, t target, command []string) error {
	stdout, stderr, code, err := m.options.Executor.ExecSync(ctx, t.containerID, command, 0)
	output := append(stdout, stderr...)
	err = withoutOperation(err)
	if err == nil && code != 0 {
		err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(command, " "), code, stderr)
	}
	if err != nil {
		return fmt.Errorf("%w, message: %q", err, output)
	}
	return nil
}

// hookHTTP makes the request; any answer is a success. The protocol of the action is
// that of probes: hooks have the default, as in kubelet. If the server does not
// support TLS, the request is repeated without TLS and without its credentials,
// because releases before 1.25 ignored the scheme.
func (m *Manager) hookHTTP(ctx context.Context, t target, action *corev1.HTTPGetAction) error {
	request, err := m.request(ctx, t, action, "lifecycle")
	if err != nil {
		return err
	}
	err = m.ask(request)
	if !errors.Is(err, http.ErrSchemeMismatch) {
		return err
	}
	plain := request.Clone(ctx)
	plain.URL.Scheme = "http"
	plain.Header.Del("Authorization")
	if m.ask(plain) != nil {
		return err
	}
	m.metrics.httpFallbacks.Inc()
	m.options.Recorder.Event(t.pod, pod.Event{
		Type:    corev1.EventTypeWarning,
		Reason:  "LifecycleHTTPFallback",
		Message: fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", request.URL.Host),
	})
	return nil
}

func (m *Manager) ask(request *http.Request) error {
	response, err := client(m.transport, 0).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	// Wait for the server's answer.
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxOutput))
	if err != nil {
		klog.V(2).InfoS("Failed to read the response to a lifecycle hook", "url", request.URL.Redacted(), "err", err)
	}
	return nil
}

func (m *Manager) hookSleep(ctx context.Context, action *corev1.SleepAction) error {
	timer := m.options.Clock.NewTimer(pod.Seconds(action.Seconds))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		m.metrics.sleepsTerminated.Inc()
		return errors.New("container terminated before sleep hook finished")
	case <-timer.C():
		return nil
	}
}
