package agent

import (
	"context"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"svc.dev/svc/svclet/runtime/runtimetest"
)

func TestAnAgentThatStopsLogsNoErrors(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	agent := m.made(ctx)
	cancel()
	agent.adopt()
	m.Expect(agent.Run(ctx)).To(gomega.Succeed())
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		if entry.Type == ktesting.LogError {
			t.Errorf("logged %q: %v %v", entry.Message, entry.Err, entry.ParameterKVList)
		}
	}
}
