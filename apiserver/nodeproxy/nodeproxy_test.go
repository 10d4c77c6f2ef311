package nodeproxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"svc.dev/svc/apiserver/options"
)

func TestProxiesOnlyReachGlobalUnicastAddresses(t *testing.T) {
	for address, allowed := range map[string]bool{
		"10.1.2.3:80": true, "192.0.2.1:80": true, "[fd00::1]:80": true, "[2001:db8::1]:80": true,
		"127.0.0.1:80": false, "[::1]:80": false, "[::ffff:127.0.0.1]:80": false, "0.0.0.0:80": false, "169.254.169.254:80": false, "[fe80::1]:80": false, "224.0.0.1:80": false,
	} {
		if err := refuseLocal("tcp", address, nil); (err == nil) != allowed {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestANameThatResolvesToThisMachineIsRefused(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	a, err := New(options.New().Agents)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(s.URL, "127.0.0.1", "localhost", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := a.Other.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
		t.Fatal("the connection was not refused")
	}
	if !strings.Contains(err.Error(), "address not allowed") {
		t.Error(err)
	}
}

func TestTheProxyOfTheEnvironmentIsNotUsedForAgents(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
	a, err := New(options.New().Agents)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://10.1.2.3:10250/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	inner, ok := unwrap(a.Unverified)
	if !ok {
		t.Fatalf("%T contains no http.Transport", a.Unverified)
	}
	if proxy, err := inner.Proxy(req); proxy != nil || err != nil {
		t.Errorf("the proxy of a request is %v (%v)", proxy, err)
	}
}

func TestOnlyTheFirstByteHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connect := func() (mine, theirs net.Conn) {
			ours, theirs := net.Pipe()
			mine, err := withFirstByteTimeout(ours, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { mine.Close() })
			return mine, theirs
		}
		silent, _ := connect()
		if _, err := io.ReadAll(silent); err == nil || !strings.Contains(err.Error(), "took the connection and has said nothing within 1s") {
			t.Errorf("reading from a silent peer fails with %v", err)
		}

		slow, theirs := connect()
		written := make(chan error, 1)
		go func() {
			_, first := io.WriteString(theirs, "a")
			time.Sleep(time.Hour)
			_, second := io.WriteString(theirs, "b")
			written <- errors.Join(first, second, theirs.Close())
		}()
		received, err := io.ReadAll(slow)
		if err := errors.Join(err, <-written); err != nil || string(received) != "ab" {
			t.Errorf("reading from a slow peer returns %q, %v", received, err)
		}
	})
}

// unwrap returns the http.Transport inside t; false if there is none.
func unwrap(t http.RoundTripper) (*http.Transport, bool) {
	for {
		wrapper, ok := t.(utilnet.RoundTripperWrapper)
		if !ok {
			inner, ok := t.(*http.Transport)
			return inner, ok
		}
		t = wrapper.WrappedRoundTripper()
	}
}
