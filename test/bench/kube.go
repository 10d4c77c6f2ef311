package main

import (
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
)

// kubeSystem runs kube-apiserver and etcd as a careful operator would on a
// single machine: RBAC, TLS towards clients, keys of its own for service
// accounts, etcd on the loopback interface without TLS, and otherwise the
// defaults.
type kubeSystem struct {
	apiserver, etcd            string // binaries
	port, etcdPort, etcdToPeer string
}

func newKube(apiserver, etcd string) (*kubeSystem, error) {
	k := &kubeSystem{apiserver: apiserver, etcd: etcd}
	for _, port := range []*string{&k.port, &k.etcdPort, &k.etcdToPeer} {
		var err error
		if *port, err = freePort(); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *kubeSystem) Name() string       { return "kube" }
func (k *kubeSystem) Binaries() []string { return []string{k.apiserver, k.etcd} }
func (k *kubeSystem) URL() string        { return "https://" + net.JoinHostPort("127.0.0.1", k.port) }

func (k *kubeSystem) Processes(dir string) ([]process, error) {
	pki := filepath.Join(dir, "pki")
	if _, err := os.Stat(pki); os.IsNotExist(err) {
		if err := writePKI(pki); err != nil {
			return nil, err
		}
	}
	var (
		etcdAddress = net.JoinHostPort("127.0.0.1", k.etcdPort)
		etcdURL     = "http://" + etcdAddress
		peerURL     = "http://" + net.JoinHostPort("127.0.0.1", k.etcdToPeer)
		file        = func(name string) string { return filepath.Join(pki, name) }
	)
	return []process{{
		name: "etcd", path: k.etcd, listens: etcdAddress,
		args: []string{
			"--data-dir=" + filepath.Join(dir, "etcd"),
			"--listen-client-urls=" + etcdURL,
			"--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=" + peerURL,
			"--initial-advertise-peer-urls=" + peerURL,
			"--initial-cluster=default=" + peerURL,
		},
	}, {
		name: "kube-apiserver", path: k.apiserver,
		args: []string{
			"--etcd-servers=" + etcdURL,
			"--bind-address=127.0.0.1",
			"--secure-port=" + k.port,
			// A loopback address is refused here; no client connects to this one.
			"--advertise-address=192.0.2.10",
			"--tls-cert-file=" + file("server.crt"),
			"--tls-private-key-file=" + file("server.key"),
			"--client-ca-file=" + file("ca.crt"),
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + file("service-account.key"),
			"--service-account-signing-key-file=" + file("service-account.key"),
			"--service-cluster-ip-range=10.96.0.0/16",
			"--authorization-mode=RBAC",
			// It requires a service account, which no controller manager creates here.
			"--disable-admission-plugins=ServiceAccount",
		},
	}}, nil
}

func (k *kubeSystem) Config(dir string) (*rest.Config, error) {
	pki := filepath.Join(dir, "pki")
	return &rest.Config{
		Host: k.URL(),
		TLSClientConfig: rest.TLSClientConfig{
			CAFile:   filepath.Join(pki, "ca.crt"),
			CertFile: filepath.Join(pki, "admin.crt"),
			KeyFile:  filepath.Join(pki, "admin.key"),
		},
	}, nil
}
