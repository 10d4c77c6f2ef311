package stream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	frames "github.com/moby/spdystream/spdy"
	"go.uber.org/goleak"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/footprint/leaks"
)

// silentRuntime upgrades connections, and answers no stream on them. asked
// receives when a client has opened one.
func silentRuntime(t *testing.T, tls bool) (address *url.URL, asked chan struct{}) {
	t.Helper()
	asked = make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", spdy.HeaderSpdy31)
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if framer, err := frames.NewFramer(io.Discard, buffered.Reader); err != nil {
			t.Error(err)
		} else if _, err := framer.ReadFrame(); err == nil {
			asked <- struct{}{}
		}
		_, _ = io.Copy(io.Discard, buffered.Reader) // until the client disconnects
		_ = conn.Close()
	}))
	if tls {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return address, asked
}

func TestAStreamThatTheRuntimeDoesNotAcceptEndsWithTheClientAndLeavesNoGoroutine(t *testing.T) {
	for name, tls := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			others := goleak.IgnoreCurrent()
			t.Cleanup(func() { leaks.None(t, others) })
			runtime, asked := silentRuntime(t, tls)
			ctx, disconnect := context.WithCancel(t.Context())
			defer disconnect()
			f := &forwarder{ctx: ctx, clock: clock.RealClock{}, address: func(context.Context) (*url.URL, error) { return runtime, nil }}
			ended := make(chan error, 1)
			go func() { ended <- f.PortForward(ctx, "sandbox", "", 80, nil) }()
			<-asked
			disconnect()
			if err := <-ended; !errors.Is(err, errConnectionEnded) {
				t.Errorf("ended with %v", err)
			}
			f.close()
		})
	}
}

func TestARefusedUpgradeNamesTheRuntimesAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such token", http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	runtime, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{ctx: t.Context(), clock: clock.RealClock{}, address: func(context.Context) (*url.URL, error) { return runtime, nil }}
	defer f.close()
	_, err = f.connect()
	const want = "connect to the container runtime: the container runtime answered 404 Not Found: no such token"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
