package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cri "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/pod"
)

// target is the container of a probe or hook.
type target struct {
	pod         *corev1.Pod
	container   *corev1.Container
	containerID string
	ip          string
}

// verdict is the result of one run of a probe.
type verdict string

const (
	success verdict = "success"
	// warning is a success with an event.
	warning verdict = "warning"
	failure verdict = "failure"
	// unknown means that the probe could not be run.
	unknown verdict = "unknown"
)

// outcome is the result of one run of a probe. One with an error is ignored.
type outcome struct {
	verdict verdict
	output  string
	err     error
}

func (o outcome) succeeded() bool { return o.verdict == success || o.verdict == warning }

func failed(output string) outcome { return outcome{verdict: failure, output: output} }

const (
	// attempts is how often a probe that cannot be run is retried at once.
	attempts = 3
	// maxOutput bounds how much output of a probe's command or server is read, in
	// bytes.
	maxOutput = 10 << 10
	// execLeeway is how long the runtime may take, beyond a probe's timeout, to kill
	// the command.
	execLeeway = 2 * time.Minute
)

// probe runs a probe once, with retries if it cannot be run.
func (m *Manager) probe(ctx context.Context, t target, spec *corev1.Probe) outcome {
	var found outcome
	for range attempts {
		if found = m.handle(ctx, t, spec); found.err == nil || ctx.Err() != nil {
			break
		}
	}
	return found
}

func (m *Manager) handle(ctx context.Context, t target, spec *corev1.Probe) outcome {
	timeout := timeoutOf(spec)
	switch {
	case spec.Exec != nil:
		return m.exec(ctx, t, spec.Exec, timeout)
	case spec.HTTPGet != nil:
		return m.http(ctx, t, spec.HTTPGet, timeout)
	case spec.TCPSocket != nil:
		return m.tcp(ctx, t, spec.TCPSocket, timeout)
	case spec.GRPC != nil:
		return m.grpc(ctx, t, spec.GRPC, timeout)
	default:
		return outcome{verdict: unknown, err: fmt.Errorf("missing probe handler for %s:%s", nameOf(t.pod), t.container.Name)}
	}
}

// record records the event of a run, if there is one.
func (m *Manager) record(t target, kind pod.ProbeKind, found outcome) {
	event := pod.Event{Type: corev1.EventTypeWarning, Reason: "Unhealthy", Container: t.container.Name}
	switch {
	case found.err != nil:
		event.Message = fmt.Sprintf("%s probe errored and resulted in %s state: %s", kind, found.verdict, found.err)
	case found.verdict == failure:
		event.Message = fmt.Sprintf("%s probe failed: %s", kind, found.output)
	case found.verdict == warning:
		event.Reason = "ProbeWarning"
		event.Message = fmt.Sprintf("%s probe warning: %s", kind, found.output)
	default:
		return
	}
	klog.V(1).InfoS("Probe failed", "pod", klog.KObj(t.pod), "container", t.container.Name, "kind", kind, "verdict", found.verdict, "output", found.output, "err", found.err)
	m.options.Recorder.Event(t.pod, event)
}

func (m *Manager) exec(ctx context.Context, t target, action *corev1.ExecAction, timeout time.Duration) outcome {
	ctx, cancel := context.WithTimeout(ctx, timeout+execLeeway)
	defer cancel()
	command, err := expandCommand(action.Command, t.container.Env)
	if err != nil {
		return outcome{verdict: unknown, err: err}
	}
	stdout, stderr, code, err := m.options.Executor.ExecSync(ctx, t.containerID, command, timeout)
	switch {
	case tookTooLong(err):
		return failed(fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(command, " "), timeout))
	case err != nil:
		return outcome{verdict: unknown, err: withoutOperation(err)}
	}
	output := append(stdout, stderr...)
	output = output[:min(len(output), maxOutput)]
	if code != 0 {
		return failed(string(output))
	}
	return outcome{verdict: success, output: string(output)}
}

func tookTooLong(err error) bool {
	return errors.Is(err, cri.ErrCommandTimedOut) || errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

// withoutOperation returns the runtime's own error without the operation and the
// container: events name the container already.
func withoutOperation(err error) error {
	var own interface {
		error
		GRPCStatus() *status.Status
	}
	if errors.As(err, &own) {
		return own
	}
	return err
}

func (m *Manager) tcp(ctx context.Context, t target, action *corev1.TCPSocketAction, timeout time.Duration) outcome {
	address, err := t.address(action.Host, action.Port)
	if err != nil {
		return outcome{verdict: unknown, err: err}
	}
	dialer := newDialer()
	dialer.Timeout = timeout
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return failed(err.Error())
	}
	if err := conn.Close(); err != nil {
		klog.V(2).InfoS("Failed to close the connection of a TCP probe", "address", address, "err", err)
	}
	return outcome{verdict: success}
}

var errNoIP = errors.New("the pod has no IP address")

// address returns the address of a handler: its host, or else the pod, and its
// port by number or name.
func (t target) address(host string, port intstr.IntOrString) (string, error) {
	number, err := portOf(port, t.container)
	if err != nil {
		return "", err
	}
	if host == "" {
		host = t.ip
	}
	if host == "" {
		// An empty host would be the node itself.
		return "", errNoIP
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

// portOf resolves a port. A string that is not the name of a container port may be
// a number.
func portOf(port intstr.IntOrString, c *corev1.Container) (int, error) {
	number := port.IntValue()
	if port.Type == intstr.String {
		for i := range c.Ports {
			if c.Ports[i].Name == port.StrVal {
				number = int(c.Ports[i].ContainerPort)
				break
			}
		}
		if number == 0 {
			var err error
			if number, err = strconv.Atoi(port.StrVal); err != nil {
				return 0, err
			}
		}
	}
	if number <= 0 || number > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", number)
	}
	return number, nil
}

// nameOf returns the pod's name as in kubelet's messages.
func nameOf(p *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", p.Name, p.Namespace, p.UID)
}
