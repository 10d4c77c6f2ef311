package probe

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/internal/footprint/leaks"
	"svc.dev/svc/svclet/pod"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// execFunc is an Executor.
type execFunc func(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, code int32, err error)

func (f execFunc) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, []byte, int32, error) {
	return f(ctx, id, command, timeout)
}

// journal records results and events.
type journal struct {
	mu      sync.Mutex
	events  []string
	results []string
}

func (j *journal) Event(p *corev1.Pod, e pod.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, fmt.Sprintf("%s %s %s/%s: %s", e.Type, e.Reason, p.Name, e.Container, e.Message))
}

func (j *journal) result(uid types.UID, r pod.ProbeResult) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.results = append(j.results, fmt.Sprintf("%s %s %s %t %s", uid, r.ContainerID, r.Kind, r.Success, r.Message))
}

// take returns what was recorded since the last call.
func (j *journal) take() (events, results []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	events, results = j.events, j.results
	j.events, j.results = nil, nil
	return events, results
}

func newManager(j *journal, exec execFunc) *Manager {
	return New(Options{
		Executor: exec,
		Recorder: j,
		Result:   j.result,
		Version:  "1.36",
		Random:   func() float64 { return 0.5 },
	})
}

// podOf returns a pod with containers of these names, whose port web is the given
// one.
func podOf(port int, containers ...string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = "p", "ns", "uid"
	for _, name := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name:  name,
			Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(port)}},
		})
	}
	return p
}

// execProbe returns a probe of the container c, whose command is its kind.
func execProbe(kind pod.ProbeKind, since time.Time, change func(*corev1.Probe)) pod.Probe {
	spec := &corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1}
	spec.Exec = &corev1.ExecAction{Command: []string{string(kind)}}
	if change != nil {
		change(spec)
	}
	return pod.Probe{Kind: kind, Container: "c", ContainerID: "id-c", Spec: spec, Since: since}
}
