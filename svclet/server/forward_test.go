package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forwarders are the protocols with which kubectl forwards ports.
var forwarders = []struct {
	name string
	dial func(n *node, to *url.URL) (httpstream.Dialer, error)
}{
	{"SPDY", func(n *node, to *url.URL) (httpstream.Dialer, error) {
		transport, upgrader, err := spdy.RoundTripperFor(n.restConfig())
		return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, to), err
	}},
	{"SPDY through a websocket", func(n *node, to *url.URL) (httpstream.Dialer, error) {
		return portforward.NewSPDYOverWebsocketDialerForStreaming(to, n.restConfig())
	}},
}

// forwarded runs kubectl's port forwarding to the pod web until the end of the
// test, and returns the local address and its error output.
func forwarded(t *testing.T, n *node, dialer httpstream.Dialer, port int) (string, *bytes.Buffer) {
	t.Helper()
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var complaints bytes.Buffer
	f, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, &complaints)
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("forwarding has not begun: %v", err)
	}
	t.Cleanup(func() {
		close(stop)
		if err := <-ended; err != nil && !errors.Is(err, portforward.ErrLostConnectionToPod) {
			t.Errorf("forwarding has ended with %v", err)
		}
	})
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), &complaints
}

// dialTCP connects to a forwarded port.
func dialTCP(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// echo answers with the port and the input.
func echo(port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	fmt.Fprintf(stream, "%d:", port)
	_, err := io.Copy(stream, stream)
	return err
}

func TestPortsAreForwardedOverEveryProtocol(t *testing.T) {
	for _, forwarder := range forwarders {
		t.Run(forwarder.name, func(t *testing.T) {
			n := start(t, nil)
			n.pods.add(web())
			n.runtime.forward = echo
			dialer, err := forwarder.dial(n, n.url("/portForward/default/web", nil))
			if err != nil {
				t.Fatal(err)
			}
			address, _ := forwarded(t, n, dialer, 80)
			sent := strings.Repeat("x", 1<<20)
			for range 3 { // one after the other, over the same connection
				c := dialTCP(t, address)
				go func() {
					_, _ = io.WriteString(c, sent)
					_ = c.CloseWrite()
				}()
				got, err := io.ReadAll(c)
				if err != nil {
					t.Fatal(err)
				}
				if string(got) != "80:"+sent {
					t.Errorf("%d bytes came back of %d", len(got), len(sent))
				}
			}
			n.runtime.mu.Lock()
			defer n.runtime.mu.Unlock()
			if n.runtime.dialled != 1 {
				t.Errorf("the runtime was dialled %d times for one client", n.runtime.dialled)
			}
		})
	}
}

func TestARefusedPortIsReportedWithTheRuntimesMessage(t *testing.T) {
	for _, forwarder := range forwarders {
		t.Run(forwarder.name, func(t *testing.T) {
			n := start(t, nil)
			n.pods.add(web())
			n.runtime.forward = func(int32, io.ReadWriteCloser) error { return errors.New("connection refused") }
			dialer, err := forwarder.dial(n, n.url("/portForward/default/web", nil))
			if err != nil {
				t.Fatal(err)
			}
			connection, _, err := dialer.Dial("portforward.k8s.io")
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			headers := http.Header{"Port": {"81"}, "Requestid": {"0"}, "Streamtype": {"error"}}
			failure, err := connection.CreateStream(headers)
			if err != nil {
				t.Fatal(err)
			}
			headers.Set("streamType", "data")
			if _, err := connection.CreateStream(headers); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len("error forwarding port 81 to pod sandbox-id, uid : connection refused"))
			if _, err := io.ReadFull(failure, got); err != nil {
				t.Fatal(err)
			}
			if want := "error forwarding port 81 to pod sandbox-id, uid : connection refused"; string(got) != want {
				t.Errorf("the client reads %q, want %q", got, want)
			}
		})
	}
}

func TestForwardingEndsWhenTheClientDisconnects(t *testing.T) {
	for _, forwarder := range forwarders {
		t.Run(forwarder.name, func(t *testing.T) {
			n := start(t, nil)
			n.pods.add(web())
			opened, ended := make(chan struct{}), make(chan struct{})
			n.runtime.forward = func(_ int32, stream io.ReadWriteCloser) error {
				close(opened)
				defer close(ended)
				_, err := io.Copy(io.Discard, stream)
				return err
			}
			dialer, err := forwarder.dial(n, n.url("/portForward/default/web", nil))
			if err != nil {
				t.Fatal(err)
			}
			connection, _, err := dialer.Dial("portforward.k8s.io")
			if err != nil {
				t.Fatal(err)
			}
			headers := http.Header{"Port": {"80"}, "Requestid": {"0"}, "Streamtype": {"error"}}
			for _, kind := range []string{"error", "data"} {
				headers.Set("streamType", kind)
				if _, err := connection.CreateStream(headers); err != nil {
					t.Fatal(err)
				}
			}
			<-opened
			_ = connection.Close()
			<-ended
		})
	}
}

func TestPortsAreForwardedOverTheOldWebsocketProtocol(t *testing.T) {
	n := start(t, nil)
	n.pods.add(web())
	n.runtime.forward = echo
	to := n.url("/portForward/default/web", url.Values{"port": {"80"}})
	to.Scheme = "wss"
	dialer := websocket.Dialer{TLSClientConfig: insecure(), Subprotocols: []string{"v4.channel.k8s.io"}}
	conn, answer, err := dialer.DialContext(t.Context(), to.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	defer conn.Close()
	var data []byte
	for i := 0; len(data) < len("80:hello"); i++ {
		_, frame, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 { // the number of the port
			if !bytes.Equal(frame, []byte{0, 80, 0}) {
				t.Errorf("began with %v", frame)
			}
			if err := conn.WriteMessage(websocket.BinaryMessage, []byte("\x00hello")); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if frame[0] == 0 {
			data = append(data, frame[1:]...)
		}
	}
	if string(data) != "80:hello" {
		t.Errorf("read %q", data)
	}
}

func TestThePortsOfTheOldWebsocketProtocolAreChecked(t *testing.T) {
	n := start(t, nil)
	n.pods.add(web())
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io"}}
	for query, want := range map[string]string{
		"":                             `query parameter "port" is required`,
		"port=":                        `query parameter "port" cannot be empty`,
		"port=0":                       `port "0" must be > 0`,
		strings.Repeat("port=1&", 129): `129 ports are asked for, and a websocket has room for 128`,
		"port=99999":                   `unable to parse "99999" as a port: strconv.ParseUint: parsing "99999": value out of range`,
	} {
		to := n.url("/portForward/default/web", nil)
		to.RawQuery = query
		if code, body := fetch(t, plainClient(), http.MethodGet, to.String(), header.Clone()); code != 400 || strings.TrimSpace(body) != want {
			t.Errorf("%q is answered %d %q, want 400 %q", query, code, body, want)
		}
	}
}

func TestAForwardingFailureIsAnsweredBeforeTheUpgrade(t *testing.T) {
	n := start(t, nil)
	n.pods.add(web())
	n.runtime.refuse = errNoContainer
	for _, forwarder := range forwarders {
		dialer, err := forwarder.dial(n, n.url("/portForward/default/web", nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = dialer.Dial("portforward.k8s.io"); err == nil {
			t.Errorf("%s: a connection was made", forwarder.name)
		}
	}
}
