package apiserver_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	collectorapi "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	traceapi "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// spanCollector is a collector of spans that speaks OTLP.
type spanCollector struct {
	collectorapi.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*traceapi.Span
}

// startSpanCollector starts a collector, and returns a file of --tracing-config-file that names
// it.
func startSpanCollector(t *testing.T) (c *spanCollector, file string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c = &spanCollector{}
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
	return c, write(t, fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: 1000000\n", listener.Addr()))
}

// Export implements the collector.
func (c *spanCollector) Export(_ context.Context, request *collectorapi.ExportTraceServiceRequest) (*collectorapi.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &collectorapi.ExportTraceServiceResponse{}, nil
}

// find returns the first span that fits, nil if there is none.
func (c *spanCollector) find(fits func(*traceapi.Span) bool) *traceapi.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range c.spans {
		if fits(span) {
			return span
		}
	}
	return nil
}

// TestRequestsHaveSpans: the span of a request is a part of its client's, and the server's steps
// are parts of it.
func TestRequestsHaveSpans(t *testing.T) {
	c, file := startSpanCollector(t)
	o, _ := newOptions(t)
	o.Tracing.ConfigFile = file
	r := start(t, o)
	const (
		trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
		path          = "/api/v1/namespaces/default/configmaps"
	)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+path, strings.NewReader(`{"metadata": {"name": "a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("traceparent", "00-"+trace+"-"+parent+"-01")
	response, err := r.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		t.Fatal(response.Status)
	}
	r.stop(t) // sends what is left
	of := c.find(func(s *traceapi.Span) bool { return s.GetName() == "POST /api/v1/namespaces/{:namespace}/configmaps" })
	if of == nil {
		t.Fatalf("no span of the request among %d", len(c.spans))
	}
	if got := fmt.Sprintf("%x %x", of.GetTraceId(), of.GetParentSpanId()); got != trace+" "+parent {
		t.Errorf("it is in %s, want that of the client, %s %s", got, trace, parent)
	}
	if step := c.find(func(s *traceapi.Span) bool {
		return string(s.GetParentSpanId()) == string(of.GetSpanId()) && s.GetName() == "Create"
	}); step == nil {
		t.Error("the span of the request has none of its handler")
	}
}

func TestABadTracingConfigurationIsRefused(t *testing.T) {
	o, _ := newOptions(t)
	o.Tracing.ConfigFile = write(t, "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: -1\n")
	errs := o.Validate()
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "--tracing-config-file: "+o.Tracing.ConfigFile) || !strings.Contains(errs[0].Error(), "samplingRatePerMillion") {
		t.Errorf("%v", errs)
	}
}
