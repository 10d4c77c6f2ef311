package apiserver

import (
	"strings"
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"svc.dev/svc/apiserver/options"
)

func TestTracingNeedsItsGate(t *testing.T) {
	c := &chain{
		options: &options.Options{Tracing: &genericoptions.TracingOptions{ConfigFile: "file"}},
		stores:  &stores{gate: func(gate string) bool { return gate != "APIServerTracing" }},
	}
	if err := c.setTracing(&genericapiserver.Config{}); err == nil || !strings.Contains(err.Error(), "--tracing-config-file: needs the feature gate APIServerTracing") {
		t.Error(err)
	}
	c.options.Tracing.ConfigFile = ""
	if err := c.setTracing(&genericapiserver.Config{}); err != nil {
		t.Error(err)
	}
}
