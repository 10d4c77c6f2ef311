package logbodies

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/logs/json"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestBodiesAreNotLogged makes a request of client-go with each logger.
func TestBodiesAreNotLogged(t *testing.T) {
	var out bytes.Buffer
	text := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(10), textlogger.Output(Drop(&out))))
	config := logsapi.NewLoggingConfiguration()
	config.Verbosity = 10
	asJSON, _ := json.Factory{}.Create(*config, logsapi.LoggingOptions{ErrorStream: Drop(&out), InfoStream: Drop(&out)})
	for name, logger := range map[string]klog.Logger{"text": text, "JSON": asJSON} {
		t.Run(name, func(t *testing.T) {
			out.Reset()
			body := "{\"kind\": \"Status\",\n\"message\": \"hunter2\"}"
			for _, body := range []string{body, "\x00" + body} { // the latter is logged in hexadecimal
				if err := post(klog.NewContext(t.Context(), logger), t, body); err != nil && strings.Contains(err.Error(), "hunter2") {
					t.Fatal(err)
				}
			}
			logger.V(9).Info("Made a request", "name", "x")
			if log := out.String(); strings.Contains(log, "hunter2") || strings.Contains(log, "68 75 6e 74") || !strings.Contains(log, "Made a request") {
				t.Errorf("the log is\n%s", log)
			}
		})
	}
}

func post(ctx context.Context, t *testing.T, body string) error {
	t.Helper()
	client, err := rest.RESTClientFor(&rest.Config{
		Host: "http://server", APIPath: "/api",
		ContentConfig: rest.ContentConfig{GroupVersion: &schema.GroupVersion{Version: "v1"}, NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
		Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return client.Post().AbsPath("/api/v1/secrets").Body([]byte(body)).Do(ctx).Error()
}
