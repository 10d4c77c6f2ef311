package server_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/server"
)

// renewed is a node whose serving certificate can be renewed.
type renewed struct {
	*node
	pair atomic.Pointer[tls.Certificate]
}

func startRenewed(t *testing.T) *renewed {
	t.Helper()
	r := &renewed{}
	r.renew(t, "first")
	r.node = start(t, func(o *server.Options, _ *server.Parts) {
		o.Serving = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.pair.Load(), nil }
	})
	r.pods.add(web())
	return r
}

// renew replaces the serving certificate by one for a name.
func (r *renewed) renew(t *testing.T, name string) {
	t.Helper()
	pair := newAuthority(t, "authority").pair(t, name, nil)
	r.pair.Store(&pair)
}

// expectServed checks which certificate a new connection gets.
func (r *renewed) expectServed(t *testing.T, name string) {
	t.Helper()
	conn, err := tls.Dial("tcp", r.url("", nil).Host, insecure())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; got != name {
		t.Errorf("a new connection gets the certificate %q, want %q", got, name)
	}
}

func TestARenewedServingCertificateCutsNoCommand(t *testing.T) {
	for _, protocol := range protocols {
		if protocol.name == "websocket v4" {
			continue // has no way to say that the input has ended
		}
		t.Run(protocol.name, func(t *testing.T) {
			r := startRenewed(t)
			executor, err := protocol.dial(r.node, r.url("/exec/default/web/main", wanted("input output", "cat")))
			if err != nil {
				t.Fatal(err)
			}
			stdin, input := io.Pipe()
			output, stdout := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				ended <- executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout})
				stdout.Close()
			}()
			lines := bufio.NewReader(output)
			exchange := func(line string) {
				t.Helper()
				if _, err := io.WriteString(input, line); err != nil {
					t.Fatal(err)
				}
				if got, err := lines.ReadString('\n'); err != nil || got != line {
					t.Fatalf("%q came back, %v", got, err)
				}
			}
			exchange("before\n")
			r.renew(t, "second")
			r.expectServed(t, "second")
			exchange("after\n")
			input.Close()
			if err := <-ended; err != nil {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

func TestARenewedServingCertificateCutsNoLog(t *testing.T) {
	r := startRenewed(t)
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, []byte("2026-01-01T00:00:01.000000000Z stdout F before\n"))
	logged(r.node, path, runtimeapi.ContainerState_CONTAINER_RUNNING)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url("/containerLogs/default/web/main", url.Values{"follow": {"true"}}).String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := r.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	if !lines.Scan() || lines.Text() != "before" {
		t.Fatalf("read %q, %v", lines.Text(), lines.Err())
	}
	r.renew(t, "second")
	r.expectServed(t, "second")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("2026-01-01T00:00:02.000000000Z stdout F after\n"); err != nil {
		t.Fatal(err)
	}
	logged(r.node, path, runtimeapi.ContainerState_CONTAINER_EXITED)
	if !lines.Scan() || lines.Text() != "after" {
		t.Errorf("read %q, %v", lines.Text(), lines.Err())
	}
}
