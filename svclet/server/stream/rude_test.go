package stream_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientremote "k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/internal/footprint/leaks"
	"svc.dev/svc/svclet/server/stream"
)

func TestMain(m *testing.M) {
	leaks.Main(m)
}

// idle runs commands that end with their input.
type idle struct{}

func (idle) Exec(_ context.Context, _ string, _ []string, in io.Reader, _, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	_, _ = io.Copy(io.Discard, in)
	return nil
}

func (idle) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return nil
}

func (idle) PortForward(context.Context, string, int32, io.ReadWriteCloser) error { return nil }

// agent serves the streams of an idle command, and reports its end.
func agent(t *testing.T, o stream.Options) (address string, served chan struct{}) {
	t.Helper()
	address, served, _ = agentOf(t, o, idle{})
	return address, served
}

// connections are those that a listener has accepted.
type connections struct {
	net.Listener
	mu  sync.Mutex
	all []net.Conn
}

func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, conn)
	return conn, err
}

// end closes all connections.
func (c *connections) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		_ = conn.Close() // as when the process ends
	}
}

// agentOf serves the streams of a command, and reports its end. The connections are those to the
// runtime.
func agentOf(t *testing.T, o stream.Options, command streaming.Runtime) (address string, served chan struct{}, toRuntime *connections) {
	t.Helper()
	served = make(chan struct{}, 1)
	var handler http.Handler
	containerd := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	toRuntime = &connections{Listener: containerd.Listener}
	containerd.Listener = toRuntime
	containerd.Start()
	t.Cleanup(containerd.Close)
	config := streaming.DefaultConfig
	// It waits that long for a disconnected client too, which is as long as the tests
	// run, and without a limit for later streams.
	config.StreamCreationTimeout = 10 * time.Second
	var err error
	if config.BaseURL, err = url.Parse(containerd.URL + "/"); err != nil {
		t.Fatal(err)
	}
	streams, err := streaming.NewServer(config, command)
	if err != nil {
		t.Fatal(err)
	}
	handler = streams
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := streams.GetExec(&runtimeapi.ExecRequest{ContainerId: "c", Stdin: true})
		if err != nil {
			t.Error(err)
			return
		}
		to, err := stream.ParseRuntimeURL(answer.Url)
		if err != nil {
			t.Error(err)
			return
		}
		stream.Exec(w, r, to, stream.Streams{Stdin: true}, o)
		served <- struct{}{}
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), served, toRuntime
}

// begun is an idle command that reports its begin.
type begun struct {
	idle
	at chan struct{}
}

func (b begun) Exec(ctx context.Context, id string, command []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	close(b.at)
	return b.idle.Exec(ctx, id, command, in, out, errOut, tty, resize)
}

func TestACommandThatIsCutOffHasNotSucceeded(t *testing.T) {
	for want, end := range map[string]func(*connections, *clocktesting.FakeClock){
		"the container runtime has ended the connection before the command has ended": func(c *connections, _ *clocktesting.FakeClock) { c.end() },
		"the connection was ended before the command: ":                               func(_ *connections, turned *clocktesting.FakeClock) { turned.Step(time.Hour) },
	} {
		turned := clocktesting.NewFakeClock(time.Now())
		command := begun{at: make(chan struct{})}
		address, served, toRuntime := agentOf(t, stream.Options{MaxDuration: time.Hour, Clock: turned}, command)
		executor, err := clientremote.NewSPDYExecutor(&rest.Config{}, http.MethodPost, &url.URL{Scheme: "http", Host: address})
		if err != nil {
			t.Fatal(err)
		}
		input, hold := io.Pipe()
		go func() {
			<-command.at
			end(toRuntime, turned)
		}()
		err = executor.StreamWithContext(t.Context(), clientremote.StreamOptions{Stdin: input})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		_ = hold.Close() // never fails
		<-served
	}
}

// upgrade requests a protocol by hand, and returns the connection.
func upgrade(t *testing.T, address, headers string) (net.Conn, *bufio.Reader) {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\n%s\r\n", headers)
	reader := bufio.NewReader(c)
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answered %s", answer.Status)
	}
	return c, reader
}

const (
	spdyUpgrade = "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
	wsUpgrade   = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nOrigin: http://node\r\nSec-WebSocket-Protocol: "
)

func TestAClientThatOpensNoStreamsIsDisconnected(t *testing.T) {
	address, served := agent(t, stream.Options{CreationTimeout: time.Millisecond, Lingering: time.Millisecond})
	_, reader := upgrade(t, address, spdyUpgrade)
	if _, err := io.Copy(io.Discard, reader); err != nil {
		t.Errorf("the connection has ended with %v", err)
	}
	<-served
}

func TestAConnectionEndsAtItsMaximumAge(t *testing.T) {
	for _, protocol := range []string{wsUpgrade + "v5.channel.k8s.io\r\n", wsUpgrade + "v4.channel.k8s.io\r\n"} {
		turned := clocktesting.NewFakeClock(time.Now())
		address, served := agent(t, stream.Options{MaxDuration: time.Hour, Clock: turned})
		_, reader := upgrade(t, address, protocol)
		turned.Step(time.Hour)
		_, _ = io.Copy(io.Discard, reader) // until the agent hangs up
		<-served
	}
}

func TestInvalidFramesEndTheConnection(t *testing.T) {
	for _, protocol := range []string{spdyUpgrade, wsUpgrade + "v5.channel.k8s.io\r\n", wsUpgrade + "v4.channel.k8s.io\r\n"} {
		address, served := agent(t, stream.Options{CreationTimeout: time.Millisecond, Lingering: time.Millisecond})
		c, reader := upgrade(t, address, protocol)
		if _, err := c.Write([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, reader)
		<-served
	}
}

func TestADisconnectDuringAnUpgradeLeavesNoGoroutine(t *testing.T) {
	for _, protocol := range []string{spdyUpgrade, wsUpgrade + "v5.channel.k8s.io\r\n", wsUpgrade + "v4.channel.k8s.io\r\n"} {
		address, served := agent(t, stream.Options{CreationTimeout: time.Millisecond, Lingering: time.Millisecond})
		c, _ := upgrade(t, address, protocol)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		<-served
	}
}

func TestRuntimeURLsAreChecked(t *testing.T) {
	for address, good := range map[string]bool{
		"http://127.0.0.1:1/exec/t": true, "https://127.0.0.1:1/exec/t": true,
		"": false, "/exec/t": false, "unix:///run/x": false, "http://": false, "ftp://127.0.0.1/": false, "http://[": false,
	} {
		if _, err := stream.ParseRuntimeURL(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}
