package svclet

import (
	"context"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestAnAgentThatStopsComplainsOfNothing(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	var mu sync.Mutex
	var complaints []string
	logger := funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		complaints = append(complaints, line)
	}, funcr.Options{})
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	agent := m.made(ctx)
	cancel()
	m.Expect(agent.adopt(ctx)).To(gomega.Succeed())
	m.Expect(agent.Run(ctx)).To(gomega.Succeed())
	mu.Lock()
	defer mu.Unlock()
	m.Expect(complaints).To(gomega.BeEmpty())
}

func TestNoEventIsRecordedOnceTheAgentStops(t *testing.T) {
	m := gomega.NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	recorded := record.NewFakeRecorder(2)
	events := &recorder{any: until{ctx, recorded}}
	events.Event(&corev1.Pod{}, pod.Event{Type: corev1.EventTypeNormal, Reason: "Killing", Message: "one"})
	cancel()
	events.Event(&corev1.Pod{}, pod.Event{Type: corev1.EventTypeNormal, Reason: "Killing", Message: "two"})
	events.any.Event(&corev1.Node{}, corev1.EventTypeNormal, "NodeReady", "three")
	events.any.AnnotatedEventf(&corev1.Node{}, nil, corev1.EventTypeNormal, "NodeReady", "four")
	m.Expect(recorded.Events).To(gomega.HaveLen(1))
}
