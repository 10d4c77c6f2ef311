package cluster

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/pki"
	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/svclet/agent"
	"svc.dev/svc/svclet/config"
)

// newTestNode returns the node of a new data directory, which is required to run.
func newTestNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run pods")
	}
	o := NewNodeOptions()
	o.Mode, o.port, o.healthzPort = NodeAlways, 0, 0
	server := options.New()
	dir := datadir.Dir(t.TempDir())
	return &node{options: o, dir: dir, server: server, messages: t.Output(), name: "node", keys: &certificates{PKI: &pki.PKI{}, cluster: &Cluster{Config: Config{Dir: dir, Server: server}}}}
}

// checkUnchanged checks that a node does not start, with this error, and changes nothing.
func checkUnchanged(t *testing.T, n *node, prefix, suffix string) {
	t.Helper()
	err := n.Start(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), prefix) || !strings.HasSuffix(err.Error(), suffix) {
		t.Errorf("it starts with %v, want %s ... %s", err, prefix, suffix)
	}
	if _, err := os.Stat(n.dir.Containerd()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of containerd has been made: %v", err)
	}
	root, err := agent.LockRoot(n.dir.Svclet())
	if err != nil {
		t.Fatalf("its root directory stays locked: %v", err)
	}
	root.Close()
}

func TestANodeWhosePortIsInUseDoesNotStartItsContainerd(t *testing.T) {
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	n := newTestNode(t)
	n.options.port = int32(number)
	checkUnchanged(t, n, "--node=true: listen on the secure port: ", "choose other ports with --node-port and --node-healthz-port")
}

func TestANodeWhoseLogsAreInUseDoesNotStartItsContainerd(t *testing.T) {
	n := newTestNode(t)
	other := n.agentConfig("")
	other.RootDir = t.TempDir()
	held, err := agent.Lock(other)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	checkUnchanged(t, n, "--node=true: podLogsDir: ", "choose another directory")
}

func TestANodeOfACloudIsRegisteredAsOneThatTheCloudCompletes(t *testing.T) {
	for external, want := range map[bool]string{false: "", true: config.CloudExternal} {
		n := newTestNode(t)
		n.options.ExternalCloud = external
		if got := n.agentConfig("").Flags.CloudProvider; got != want {
			t.Errorf("external cloud %t: --cloud-provider of the agent is %q, want %q", external, got, want)
		}
	}
}
