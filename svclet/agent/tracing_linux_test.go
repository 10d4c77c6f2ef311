package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/onsi/gomega"
	collectorapi "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	traceapi "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

// collector is a collector of spans that speaks OTLP.
type collector struct {
	collectorapi.UnimplementedTraceServiceServer
	mu       sync.Mutex
	resource map[string]string
	spans    []*traceapi.Span
}

func startCollector(t *testing.T) (*collector, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{resource: map[string]string{}}
	server := grpc.NewServer()
	collectorapi.RegisterTraceServiceServer(server, c)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c, listener.Addr().String()
}

// Export implements the collector.
func (c *collector) Export(_ context.Context, request *collectorapi.ExportTraceServiceRequest) (*collectorapi.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			c.resource[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &collectorapi.ExportTraceServiceResponse{}, nil
}

// named returns the spans with a name.
func (c *collector) named(name string) []*traceapi.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*traceapi.Span
	for _, span := range c.spans {
		if span.GetName() == name {
			all = append(all, span)
		}
	}
	return all
}

func TestTheAgentSendsSpansOfItsOperationsAndOfItsServer(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	c, address := startCollector(t)
	m.adjust = func(_ *config.Flags, settings *config.Configuration) {
		settings.EnableServer, settings.Address, settings.Port, settings.ReadOnlyPort, settings.HealthzPort = ptr.To(true), "127.0.0.1", 0, 0, ptr.To[int32](0)
		settings.Tracing = &tracingapi.TracingConfiguration{Endpoint: &address, SamplingRatePerMillion: ptr.To[int32](1000000)}
	}
	m.write("a", "")
	m.start()
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/pods", m.agent.listeners.Port()), nil)
	m.Expect(err).NotTo(gomega.HaveOccurred())
	request.Header.Set("traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	m.Expect(err).NotTo(gomega.HaveOccurred())
	response.Body.Close()
	m.stop() // sends what is left

	started := c.named("start container")
	m.Expect(started).To(gomega.HaveLen(1))
	attributes := map[string]string{}
	for _, a := range started[0].GetAttributes() {
		attributes[a.GetKey()] = a.GetValue().GetStringValue()
	}
	m.Expect(attributes).To(gomega.HaveKeyWithValue("k8s.pod", "default/a-node"))
	m.Expect(attributes).To(gomega.HaveKeyWithValue("k8s.container.name", "app"))
	created := c.named("runtime.v1.RuntimeService/CreateContainer")
	m.Expect(created).To(gomega.HaveLen(1))
	m.Expect(created[0].GetParentSpanId()).To(gomega.Equal(started[0].GetSpanId()), "the request is a part of the operation")
	served := c.named("GET /pods")
	m.Expect(served).To(gomega.HaveLen(1))
	m.Expect(fmt.Sprintf("%x", served[0].GetTraceId())).To(gomega.Equal(trace), "the span continues that of the client")
	m.Expect(c.resource).To(gomega.And(gomega.HaveKeyWithValue("service.name", "svclet"), gomega.HaveKeyWithValue("host.name", "node")))
}

func TestAnAgentWhoseCollectorDoesNotAnswerRunsAndEnds(t *testing.T) {
	m := newMachine(t, runtimetest.Options{})
	m.adjust = func(_ *config.Flags, settings *config.Configuration) {
		settings.Tracing = &tracingapi.TracingConfiguration{Endpoint: ptr.To("127.0.0.1:1"), SamplingRatePerMillion: ptr.To[int32](1000000)}
	}
	m.write("a", "")
	m.start()
	m.Eventually(m.isReady("a")).Should(gomega.BeTrue())
	m.stop()
}
