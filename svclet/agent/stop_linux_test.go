package agent

import (
	"context"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/onsi/gomega"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestAnAgentThatStopsLogsNoErrors(t *testing.T) {
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
	agent.adopt()
	m.Expect(agent.Run(ctx)).To(gomega.Succeed())
	mu.Lock()
	defer mu.Unlock()
	m.Expect(complaints).To(gomega.BeEmpty())
}
