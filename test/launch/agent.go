package launch

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// AgentKind is a program that runs the pods of a node.
type AgentKind string

// Svclet is svc's, Kubelet that of Kubernetes.
const (
	Svclet  AgentKind = "svclet"
	Kubelet AgentKind = "kubelet"
)

// ClusterDNS and ClusterDomain are those of the pods' resolver configuration.
const (
	ClusterDNS    = "10.96.0.10"
	ClusterDomain = "cluster.local"
)

// Program is the path of the agent: $SVCLET or $KUBELET, or else that in bin/,
// where svclet is built now, and kubelet must have been by hack/peers.sh.
func (k AgentKind) Program() (string, error) {
	if path := os.Getenv(strings.ToUpper(string(k))); path != "" {
		return filepath.Abs(path)
	}
	if k == Svclet {
		return builtSvclet()
	}
	return Peer(string(k))
}

// Peer is the path of a program that hack/peers.sh has built.
func Peer(name string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not built: run hack/peers.sh", name)
	}
	return path, nil
}

var builtSvclet = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "svclet")
	if out, err := exec.Command(filepath.Join(root, "hack", "build.sh"), path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building svclet: %w\n%s", err, out)
	}
	return path, nil
})

func moduleRoot() (string, error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(mod))), nil
}

// Cluster is where an agent's node is to be.
type Cluster struct {
	Server    string
	Authority *Authority
}

// Cluster is the server's.
func (s *Server) Cluster() (Cluster, error) {
	authority, err := s.Authority()
	return Cluster{Server: s.Config.Host, Authority: authority}, err
}

// Agent is a node agent on a machine, which runs once it is started.
type Agent struct {
	*Process
	Kind AgentKind
	// Node is the name of its node.
	Node string
	// Port is that of its server, on all addresses.
	Port string
	// Manifests is the directory of its static pods, PodLogs that of its pods'
	// logs.
	Manifests, PodLogs string
	// Program and Args are the command that starts it.
	Program string
	Args    []string
	// Attributes are those of its process; nil for those of this one.
	Attributes *syscall.SysProcAttr
	// Fields are further ones of its configuration file.
	Fields map[string]any

	machine *Machine
}

// NewAgent returns an agent that is not configured and started yet.
func (m *Machine) NewAgent(kind AgentKind, program, node string) (*Agent, error) {
	a := &Agent{Kind: kind, Node: node, Manifests: filepath.Join(m.Dir, "manifests"), PodLogs: filepath.Join(m.Dir, "logs"), Program: program, machine: m}
	var err error
	if a.Port, err = FreePort(); err != nil {
		return nil, err
	}
	connection := "--svcconfig="
	if kind == Kubelet {
		connection = "--kubeconfig="
	}
	a.Args = []string{
		"--config=" + a.file("config.yaml"), connection + a.file("connection"), "--root-dir=" + m.AgentDir(),
		"--cert-dir=" + a.file("certificates"), "--hostname-override=" + a.Node,
	}
	return a, nil
}

func (a *Agent) file(name string) string { return filepath.Join(a.machine.Dir, name) }

// Start starts the agent, for the first time or again. The caller ends it before
// the machine.
func (a *Agent) Start() (err error) {
	cmd := exec.Command(a.Program, a.Args...)
	cmd.SysProcAttr = a.Attributes
	a.Process, err = StartCommand(cmd)
	return err
}

// Configure writes the agent's files: its node is to be in cluster.
func (a *Agent) Configure(cluster Cluster) error {
	for _, dir := range []string{a.machine.AgentDir(), a.Manifests, a.PodLogs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	user := "system:node:" + a.Node
	if err := cluster.Authority.Connection(a.file("connection"), cluster.Server, user, "system:nodes"); err != nil {
		return err
	}
	names, err := a.names()
	if err != nil {
		return err
	}
	if err := cluster.Authority.Server(a.machine.Dir, "serving", user, names...); err != nil {
		return err
	}
	config, err := a.configuration(cluster)
	if err != nil {
		return err
	}
	content, err := yaml.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(a.file("config.yaml"), content, 0o600)
}

// names are those that the agent's server is reached by.
func (a *Agent) names() ([]string, error) {
	names := []string{a.Node, "localhost", "127.0.0.1"}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		if ip, ok := addr.(*net.IPNet); ok {
			names = append(names, ip.IP.String())
		}
	}
	return names, nil
}

func (a *Agent) configuration(cluster Cluster) (map[string]any, error) {
	port, err := strconv.Atoi(a.Port)
	if err != nil {
		return nil, err
	}
	config := map[string]any{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"containerRuntimeEndpoint": a.machine.Endpoint(),
		"cgroupRoot":               a.machine.CgroupRoot(),
		"cgroupDriver":             "cgroupfs",
		"failCgroupV1":             false,
		"port":                     port,
		"readOnlyPort":             0,
		"healthzPort":              0,
		"podLogsDir":               a.PodLogs,
		"staticPodPath":            a.Manifests,
		"tlsCertFile":              a.file("serving.crt"),
		"tlsPrivateKeyFile":        a.file("serving.key"),
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": cluster.Authority.File},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		"clusterDNS":    []string{ClusterDNS},
		"clusterDomain": ClusterDomain,
		// The disk of a machine of tests is as full as it is.
		"evictionHard":                map[string]string{"memory.available": "0%"}, // none
		"imageGCHighThresholdPercent": 100,
	}
	if a.Kind == Kubelet {
		// Without the capability CAP_SYS_RESOURCE no process can protect itself.
		config["oomScoreAdj"] = 0
	}
	maps.Copy(config, a.Fields)
	return config, nil
}

// Get reads a path of the agent's server, as a user whom the cluster's
// authority vouches for.
func (a *Agent) Get(ctx context.Context, cluster Cluster, path string) (status int, body []byte, err error) {
	dir, err := TempDir()
	if err != nil {
		return 0, nil, err
	}
	defer os.RemoveAll(dir)
	if err := cluster.Authority.Client(dir, "reader", "reader", "system:masters"); err != nil {
		return 0, nil, err
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "reader.crt"), filepath.Join(dir, "reader.key"))
	if err != nil {
		return 0, nil, err
	}
	tlsConfig, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: cluster.Authority.File}})
	if err != nil {
		return 0, nil, err
	}
	tlsConfig.Certificates = []tls.Certificate{pair}
	client := &http.Client{Timeout: Patience, Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+a.Port+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}
