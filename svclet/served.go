package svclet

import (
	"context"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/logs"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/server"
	"svc.dev/svc/svclet/source"
)

// served are the pods as the agent's server shows them.
type served struct {
	*pods
	runtime *runtime.Client
}

// List implements server.Pods.
func (s served) List() []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*corev1.Pod, 0, len(s.workers))
	for _, m := range s.workers {
		if !m.orphan {
			all = append(all, m.shown())
		}
	}
	return all
}

// Get implements server.Pods.
func (s served) Get(namespace, name string) (*corev1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.workers {
		if p := m.wanted(); p.Namespace == namespace && p.Name == name && !m.orphan {
			return m.shown(), true
		}
	}
	return nil, false
}

// shown is the pod with the status that this node gives it.
func (w *worker) shown() *corev1.Pod {
	wanted, status := w.current()
	p := *wanted
	if status.Phase != "" {
		p.Status = status
	}
	return &p
}

// Translate implements server.Pods.
func (s served) Translate(uid types.UID) types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.workers {
		if p := m.wanted(); source.IsStatic(p) {
			if mirror, found := s.sources.Mirror(p.UID); found && mirror.UID == uid {
				return p.UID
			}
		}
	}
	return uid
}

// Running implements server.Pods.
func (s served) Running(ctx context.Context) ([]*corev1.Pod, error) {
	held, err := s.runtime.Pods(ctx)
	if err != nil {
		return nil, err
	}
	var all []*corev1.Pod
	for _, p := range held {
		if shown := server.RunningPod(p.UID, p.Namespace, p.Name, p.Observed); len(shown.Spec.Containers) > 0 {
			all = append(all, shown)
		}
	}
	return all, nil
}

// running are the containers whose logs may grow.
func (p *pods) running() []logs.Container {
	options := p.operations.options()
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []logs.Container
	for _, m := range p.workers {
		wanted := m.wanted()
		for _, c := range m.seen().Containers {
			if c.State != pod.Running {
				continue
			}
			all = append(all, logs.Container{
				ID: c.ID, PodNamespace: wanted.Namespace, PodName: wanted.Name, Name: c.Name,
				Path: filepath.Join(container.LogDirectory(options, wanted), container.LogPath(c.Name, c.Attempt)),
			})
		}
	}
	return all
}
