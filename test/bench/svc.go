package main

import (
	"net"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// svcSystem runs `svc up`: server and etcd in one process, and no controllers,
// since kube-apiserver runs without them, too.
type svcSystem struct {
	binary string
	port   string
}

func newSVC(binary string) (*svcSystem, error) {
	port, err := freePort()
	return &svcSystem{binary: binary, port: port}, err
}

func (s *svcSystem) Name() string       { return "svc" }
func (s *svcSystem) Binaries() []string { return []string{s.binary} }
func (s *svcSystem) URL() string        { return "https://" + net.JoinHostPort("127.0.0.1", s.port) }

func (s *svcSystem) Processes(dir string) ([]process, error) {
	return []process{{name: "svc", path: s.binary, args: []string{"up", "--data-dir", dir, "--secure-port", s.port, "--controllers=", "--disable-admission-plugins=ServiceAccount", "--node=false"}}}, nil
}

func (s *svcSystem) Config(dir string) (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.svcconfig"))
}

// freePort returns a free port of the loopback interface.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}
