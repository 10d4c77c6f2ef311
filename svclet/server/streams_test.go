package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

// protocols are the stream protocols of current and older versions of kubectl and
// the API server.
var protocols = []struct {
	name string
	dial func(n *node, to *url.URL) (remotecommand.Executor, error)
}{
	{"SPDY", func(n *node, to *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewSPDYExecutor(n.restConfig(), http.MethodPost, to)
	}},
	{"websocket v5", func(n *node, to *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutor(n.restConfig(), http.MethodGet, to.String())
	}},
	{"websocket v4", func(n *node, to *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutorForProtocols(n.restConfig(), http.MethodGet, to.String(), "v4.channel.k8s.io")
	}},
}

func (n *node) restConfig() *rest.Config {
	return &rest.Config{Host: n.url("", nil).String(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// wanted returns the query that requests streams.
func wanted(streams string, command ...string) url.Values {
	q := url.Values{"command": command}
	for _, name := range strings.Fields(streams) {
		q.Set(name, "1")
	}
	return q
}

func TestCommandsRunOverEveryProtocol(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol.name, func(t *testing.T) {
			for _, c := range []struct {
				name    string
				command []string
				stdin   string
				out     string
				err     string
				fails   string
				code    int
			}{
				{name: "output and errors keep apart", command: []string{"both"}, out: "out", err: "err"},
				{name: "an exit code comes through", command: []string{"exit", "3"}, out: "before", fails: "exit code 3", code: 3},
				{
					name: "a failure to run is told once", command: []string{"fail"},
					fails: "Internal error occurred: error executing command in container: no such program",
				},
			} {
				t.Run(c.name, func(t *testing.T) {
					n := start(t, nil)
					n.pods.add(web())
					executor, err := protocol.dial(n, n.url("/exec/default/web/main", wanted("output error", c.command...)))
					if err != nil {
						t.Fatal(err)
					}
					var out, errOut bytes.Buffer
					err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut})
					var exit exec.CodeExitError
					switch {
					case c.fails == "" && err != nil, c.fails != "" && (err == nil || !strings.HasSuffix(err.Error(), c.fails)):
						t.Errorf("ended with %v, want %q", err, c.fails)
					case c.code != 0 && (!errors.As(err, &exit) || exit.Code != c.code):
						t.Errorf("ended with %v, want the exit code %d", err, c.code)
					}
					if out.String() != c.out || errOut.String() != c.err {
						t.Errorf("wrote %q and %q, want %q and %q", out.String(), errOut.String(), c.out, c.err)
					}
				})
			}
		})
	}
}

func TestTheEndOfInputIsForwardedToTheCommand(t *testing.T) {
	for _, protocol := range protocols {
		if protocol.name == "websocket v4" {
			continue // has no way to say that the input has ended
		}
		t.Run(protocol.name, func(t *testing.T) {
			n := start(t, nil)
			n.pods.add(web())
			executor, err := protocol.dial(n, n.url("/exec/default/web/main", wanted("input output", "cat")))
			if err != nil {
				t.Fatal(err)
			}
			sent := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB: more than any window
			var out bytes.Buffer
			if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(sent), Stdout: &out}); err != nil {
				t.Fatal(err)
			}
			if out.String() != sent {
				t.Errorf("%d bytes came back of %d", out.Len(), len(sent))
			}
		})
	}
}

// sizes are the sizes of a terminal that is resized once.
type sizes struct{ next []remotecommand.TerminalSize }

func (s *sizes) Next() *remotecommand.TerminalSize {
	if len(s.next) == 0 {
		return nil
	}
	size := s.next[0]
	s.next = s.next[1:]
	return &size
}

func TestTerminalsAreResized(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol.name, func(t *testing.T) {
			n := start(t, nil)
			n.pods.add(web())
			executor, err := protocol.dial(n, n.url("/exec/default/web/main", wanted("output tty", "size")))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{
				Stdout: &out, Tty: true, TerminalSizeQueue: &sizes{[]remotecommand.TerminalSize{{Width: 80, Height: 25}, {Width: 120, Height: 40}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := "80x25 tty=true\n120x40 tty=true\n"; out.String() != want {
				t.Errorf("the command saw %q, want %q", out.String(), want)
			}
		})
	}
}

func TestAttachHasATerminalIfTheContainerHas(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol.name, func(t *testing.T) {
			for container, want := range map[string]string{
				"main": "main-id tty=false said hello\n", "terminal": "terminal-id tty=true said hello\n",
			} {
				n := start(t, nil)
				n.pods.add(web())
				executor, err := protocol.dial(n, n.url("/attach/default/web/uid/"+container, wanted("input output error")))
				if err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{
					Stdin: strings.NewReader("hello\n"), Stdout: &out, Stderr: io.Discard,
				})
				if err != nil {
					t.Fatal(err)
				}
				if out.String() != want {
					t.Errorf("the client of %s read %q, want %q", container, out.String(), want)
				}
				if r := n.runtime.attached[0]; r.Tty && r.Stderr {
					t.Error("the runtime was asked for a terminal and for errors apart")
				}
			}
		})
	}
}

func TestACommandEndsWhenItsClientDisconnects(t *testing.T) {
	for _, protocol := range protocols {
		for _, command := range []string{"forever", "idle"} {
			t.Run(protocol.name+" "+command, func(t *testing.T) {
				n := start(t, nil)
				n.pods.add(web())
				executor, err := protocol.dial(n, n.url("/exec/default/web/main", wanted("input output", command)))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				input, never := io.Pipe()
				defer never.Close()
				go func() {
					<-ctx.Done()
					never.Close()
				}()
				err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: input, Stdout: afterFirst{cancel}})
				if err == nil {
					t.Error("the stream has ended by itself")
				}
				if got := <-n.runtime.gone; got != command {
					t.Errorf("%q ended, want %q", got, command)
				}
			})
		}
	}
}

// afterFirst calls a function after the first line.
type afterFirst struct{ then func() }

func (a afterFirst) Write(p []byte) (int, error) {
	a.then()
	return len(p), nil
}

func TestInvalidStreamRequestsAreRefused(t *testing.T) {
	n := start(t, nil)
	n.pods.add(web())
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}
	for _, c := range []struct {
		name, path string
		query      url.Values
		header     http.Header
		code       int
		body       string
	}{
		{"no upgrade", "/exec/default/web/main", wanted("output", "cat"), nil, 400, "Upgrade request required\n"},
		{"no stream", "/exec/default/web/main", wanted("", "cat"), upgrade, 400, "you must specify at least 1 of stdin, stdout, stderr\n"},
		{"no pod", "/exec/default/none/main", wanted("output", "cat"), upgrade, 404, "pod does not exist"},
		{"another pod of that name", "/exec/default/web/other/main", wanted("output", "cat"), upgrade, 404, "pod not found"},
		{"no container", "/exec/default/web/none", wanted("output", "cat"), upgrade, 500, `container not found ("none")`},
		{"a container that has ended", "/exec/default/web/done", wanted("output", "cat"), upgrade, 500, `container not found ("done")`},
		{"no container to attach to", "/attach/default/web/none", wanted("output"), upgrade, 500, "container none not found in pod web_default"},
		{"no pod to forward to", "/portForward/default/none", nil, upgrade, 404, "pod does not exist"},
		{
			"an unknown protocol", "/exec/default/web/main", wanted("output", "cat"),
			http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v9"}},
			403, "unable to upgrade: unable to negotiate protocol: client supports [v9], server accepts [v4.channel.k8s.io v3.channel.k8s.io v2.channel.k8s.io channel.k8s.io]\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, body := fetch(t, plainClient(), http.MethodPost, n.url(c.path, c.query).String(), c.header.Clone())
			if code != c.code || body != c.body {
				t.Errorf("answered %d %q, want %d %q", code, body, c.code, c.body)
			}
		})
	}
}

func TestTheRuntimesRefusalReachesTheClient(t *testing.T) {
	n := start(t, nil)
	n.pods.add(web())
	n.runtime.refuse = errNoContainer
	executor, err := protocols[0].dial(n, n.url("/exec/default/web/main", wanted("output", "cat")))
	if err != nil {
		t.Fatal(err)
	}
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "no such container") {
		t.Errorf("ended with %v", err)
	}
}

func TestARuntimeThatRedirectsIsRefused(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol.name, func(t *testing.T) {
			n := start(t, nil)
			n.pods.add(web())
			n.runtime.redirect = "http://192.0.2.1/"
			executor, err := protocol.dial(n, n.url("/exec/default/web/main", wanted("output", "cat")))
			if err != nil {
				t.Fatal(err)
			}
			err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
			if err == nil || !strings.Contains(err.Error(), "redirect not allowed") {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

func TestAPodIsReachedByTheUIDOfItsMirror(t *testing.T) {
	n := start(t, nil)
	n.pods.add(web())
	executor, err := protocols[0].dial(n, n.url("/exec/default/web/mirror/main", wanted("output error", "both")))
	if err != nil {
		t.Fatal(err)
	}
	if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard}); err != nil {
		t.Error(err)
	}
}
