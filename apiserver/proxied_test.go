package apiserver_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"svc.dev/svc/apiserver/options"
)

// receiver is a server that requests are proxied to. It records the requests of one path.
type receiver struct {
	*httptest.Server
	path     string
	first    chan string // the first bytes of a body, as soon as they have come
	received chan sent
}

// sent is what a client sends.
type sent struct {
	body, query, accept, contentType string
}

func newReceiver(t *testing.T, path string) *receiver {
	t.Helper()
	b := &receiver{path: path, first: make(chan string, 1), received: make(chan sent, 1)}
	b.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != b.path {
			return // discovery, by which the aggregator finds that the server is available
		}
		beginning := make([]byte, len(firstPart))
		n, err := io.ReadFull(req.Body, beginning)
		b.first <- string(beginning[:n])
		if err == nil {
			var remaining []byte
			remaining, err = io.ReadAll(req.Body)
			beginning = append(beginning, remaining...)
		}
		if err != nil {
			t.Errorf("reading the body: %v", err)
		}
		b.received <- sent{string(beginning), req.URL.RawQuery, strings.Join(req.Header["Accept"], "|"), strings.Join(req.Header["Content-Type"], "|")}
	}))
	t.Cleanup(b.Close)
	return b
}

// port returns the port of the backend.
func (b *receiver) port(t *testing.T) string {
	t.Helper()
	at, err := url.Parse(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at.Port()
}

// firstPart is what a body begins with. The second part of a body is sent when the backend
// has received the first.
const firstPart = `{"spec": `

// stream sends a request whose body the backend gets in two parts.
func (b *receiver) stream(t *testing.T, r *running, method, path string, request sent) sent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	body, writer := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, method, r.url+path+"?"+request.query, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Accept", request.accept)
	req.Header.Set("Content-Type", request.contentType)
	answered := make(chan string, 1)
	go func() {
		resp, err := r.client.Do(req)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answered <- fmt.Sprint(resp.StatusCode, " ", string(text))
	}()
	go func() {
		_, _ = io.WriteString(writer, firstPart)
	}()
	select {
	case got := <-b.first:
		if got != firstPart {
			t.Errorf("the backend has received %q first, want %q", got, firstPart)
		}
	case answer := <-answered:
		t.Fatalf("answered before the body was sent: %s", answer)
	case <-ctx.Done():
		t.Fatal("the backend has not received the first part of the body, as it does before the second part is sent")
	}
	if _, err := io.WriteString(writer, strings.TrimPrefix(request.body, firstPart)); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	if answer := <-answered; answer != "200 " {
		t.Fatalf("answered %s", answer)
	}
	return <-b.received
}

func TestABackendGetsWhatTheClientHasSent(t *testing.T) {
	o, _ := newOptions(t)
	const nodePath, aggregatedPath = "/widgets/w", "/apis/widgets.example.com/v1/namespaces/default/widgets/w"
	agent, aggregated := newReceiver(t, nodePath), newReceiver(t, aggregatedPath)
	trustAgent(t, o, agent)
	r := start(t, o)
	registerNode(t, r, agent)
	registerServer(t, r, aggregated)

	const body = firstPart + `{"capacity": {"cpu": "1e99999"}}, "metadata": {"managedFields": []}, "status": {"capacity": {"cpu": "1e99999"}}}`
	for _, to := range []struct {
		name, path string
		*receiver
	}{
		{"through a node", "/api/v1/nodes/n/proxy" + nodePath, agent},
		{"to an aggregated server", aggregatedPath, aggregated},
	} {
		for _, test := range []struct {
			rule, method string
			sent
		}{
			{"weights and ranges of Accept", http.MethodPost, sent{body, "", "image/*, application/json;q=0.1, Text/HTML;q=0", "text/plain"}},
			{"the case of Content-Type", http.MethodPut, sent{body, "", "*/*", "Application/JSON; Charset=UTF-8"}},
			{"an apply patch without a name", http.MethodPatch, sent{body, "", "application/*", "application/apply-patch+yaml"}},
			{"a merge patch", http.MethodPatch, sent{body, "", "application/json", "application/merge-patch+json"}},
			{"a body in protobuf", http.MethodPost, sent{body, "", "application/json", "application/vnd.kubernetes.protobuf"}},
			{"an empty dryRun", http.MethodPost, sent{body, "a=1&dryRun=", "application/json", "application/json"}},
		} {
			t.Run(test.rule+" "+to.name, func(t *testing.T) {
				if got := to.stream(t, r, test.method, to.path, test.sent); got != test.sent {
					t.Errorf("the backend has received\n%q, want\n%q", got, test.sent)
				}
			})
		}
	}
}

func TestAnErrorOfAProxyIsInATypeThatTheClientAccepts(t *testing.T) {
	r := startNew(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/api/v1/nodes/n/proxy/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Accept", "application/json;q=0, application/*")
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusNotFound || got != "application/yaml" {
		t.Errorf("answered %d in %s, want 404 in application/yaml", resp.StatusCode, got)
	}
}

// trustAgent makes the certificate of the backend that of an authority of agents.
func trustAgent(t *testing.T, o *options.Options, b *receiver) {
	t.Helper()
	o.Agents.CAFile = filepath.Join(t.TempDir(), "ca.crt")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw})
	if err := os.WriteFile(o.Agents.CAFile, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
}

// registerNode makes the backend the agent of the node n.
func registerNode(t *testing.T, r *running, b *receiver) {
	t.Helper()
	create(t, r, "/api/v1/nodes", `{"metadata": {"name": "n"}}`)
	status := `{"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": ` + b.port(t) + `}}}}`
	if code, text := r.do(t, http.MethodPut, "/api/v1/nodes/n/status", status, false); code != http.StatusOK {
		t.Fatalf("answered %d: %s", code, text)
	}
}

// registerServer makes the backend the server of the group widgets.example.com.
func registerServer(t *testing.T, r *running, b *receiver) {
	t.Helper()
	host, _, err := net.SplitHostPort(b.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	create(t, r, "/api/v1/namespaces/default/services", `{"metadata": {"name": "widgets"}, "spec": {"type": "ExternalName", "externalName": "`+host+`"}}`)
	const services = "/apis/apiregistration.k8s.io/v1/apiservices"
	create(t, r, services, `{"metadata": {"name": "v1.widgets.example.com"}, "spec": {"group": "widgets.example.com", "version": "v1",
		"groupPriorityMinimum": 1, "versionPriority": 1, "insecureSkipTLSVerify": true,
		"service": {"namespace": "default", "name": "widgets", "port": `+b.port(t)+`}}}`)
	var last string
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		_, last = r.get(t, services+"/v1.widgets.example.com", false)
		return strings.Contains(last, `"reason":"Passed"`), nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, last)
	}
}

func create(t *testing.T, r *running, path, object string) {
	t.Helper()
	if code, text := r.do(t, http.MethodPost, path, object, false); code != http.StatusCreated {
		t.Fatalf("answered %d: %s", code, text)
	}
}
