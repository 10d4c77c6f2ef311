package cluster

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// unused returns the URL of a port that nothing listens at.
func unused(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return "http://" + listener.Addr().String()
}

func TestAnExternalEtcdIsReadyWhenAServerAcceptsConnections(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	socket := filepath.Join(t.TempDir(), "socket")
	local, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	for _, reachable := range []string{"http://" + tcp.Addr().String(), "https://" + tcp.Addr().String(), "unix://" + socket} {
		e := externalEtcd{serversFlag, []string{unused(t), reachable}, testclock.NewFakeClock(time.Unix(0, 0))}
		if description, err := e.Ready(t.Context()); err != nil || description != strings.Join(e.servers, ",") {
			t.Errorf("%s: %q, %v", reachable, description, err)
		}
	}
}

func TestAnExternalEtcdThatIsNotReachedIsAnErrorThatNamesTheFlag(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(0, 0))
	e := externalEtcd{serversFlag, []string{unused(t)}, clock}
	failed := make(chan error, 1)
	go func() {
		_, err := e.Ready(t.Context())
		failed <- err
	}()
	for began := clock.Now(); ; {
		select {
		case err := <-failed:
			if err == nil || !strings.HasPrefix(err.Error(), "--etcd-servers: ") || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("the error is %v", err)
			}
			if took := clock.Since(began); took < etcdTimeout {
				t.Errorf("it failed after %s", took)
			}
			return
		default:
		}
		if clock.HasWaiters() {
			clock.Step(etcdRetry)
		}
	}
}

func TestWaitingForAnExternalEtcdEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := externalEtcd{serversFlag, []string{unused(t)}, testclock.NewFakeClock(time.Unix(0, 0))}
	if _, err := e.Ready(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestTheEtcdsOfSomeResourcesAreWaitedForOnce(t *testing.T) {
	clusters := overriddenEtcds([]string{"/events#http://a:1;http://b:1", "coordination.k8s.io/leases#http://a:1;http://b:1", "/pods#http://c:1"}, nil)
	var servers []string
	for _, c := range clusters {
		if name := c.Name(); name != "etcd of --etcd-servers-overrides" {
			t.Errorf("the name is %q", name)
		}
		servers = append(servers, strings.Join(c.(externalEtcd).servers, ","))
	}
	if want := []string{"http://a:1,http://b:1", "http://c:1"}; !slices.Equal(servers, want) {
		t.Errorf("waits for %q, want %q", servers, want)
	}
}
