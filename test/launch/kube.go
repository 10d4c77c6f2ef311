package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Kube is a running kube-apiserver with its etcd, as hack/peers.sh builds them.
// It has no controllers.
type Kube struct {
	// Config is that of its administrator, Kubeconfig the file of it.
	Config     *rest.Config
	Kubeconfig string
	// Etcd is the URL of its etcd.
	Etcd string

	server, etcd *Process
	authority    *Authority
	// program and flags start the server.
	program string
	flags   []string
}

// NoServiceAccounts is the flag of a server whose pods need no service accounts, which
// only controllers create.
const NoServiceAccounts = "--disable-admission-plugins=ServiceAccount"

// kubernetesIP is the address of the service "kubernetes".
const kubernetesIP = "10.96.0.1"

// UpKube starts them on an empty directory, the server with further flags, and
// returns when they are ready. The caller ends them with Stop, also after an error.
func UpKube(ctx context.Context, dir string, flags ...string) (*Kube, error) {
	return UpKubeOf(ctx, dir, "kube-apiserver", flags...)
}

// UpKubeOf is UpKube with another program of hack/peers.sh, as kube-apiserver-1.28, or with
// the one at an absolute path.
func UpKubeOf(ctx context.Context, dir, program string, flags ...string) (*Kube, error) {
	k := &Kube{Kubeconfig: filepath.Join(dir, "admin")}
	var err error
	if k.program = program; !filepath.IsAbs(program) {
		if k.program, err = Peer(program); err != nil {
			return k, err
		}
	}
	if k.authority, err = NewAuthority(dir); err != nil {
		return k, err
	}
	if k.Etcd, err = k.startEtcd(dir); err != nil {
		return k, err
	}
	port, err := FreePort()
	if err != nil {
		return k, err
	}
	url := "https://" + net.JoinHostPort("127.0.0.1", port)
	if err := k.writeFiles(dir, url); err != nil {
		return k, err
	}
	if err := k.startServer(dir, port, flags); err != nil {
		return k, err
	}
	if k.Config, err = clientcmd.BuildConfigFromFlags("", k.Kubeconfig); err != nil {
		return k, err
	}
	k.Config.QPS = -1
	return k, k.awaitReady(ctx)
}

// FrontProxy creates the certificates in dir with which the server forwards requests to
// extension servers, and returns its flags for them.
func FrontProxy(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	authority, err := NewAuthority(dir)
	if err != nil {
		return nil, err
	}
	if err := authority.Client(dir, "proxy", "front-proxy"); err != nil {
		return nil, err
	}
	return []string{
		"--requestheader-client-ca-file=" + authority.File, "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-uid-headers=X-Remote-Uid", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + filepath.Join(dir, "proxy.crt"), "--proxy-client-key-file=" + filepath.Join(dir, "proxy.key"),
	}, nil
}

// SigningFlags are the flags of a kube-controller-manager that signs certificates with the
// authority of the server.
func (k *Kube) SigningFlags() []string {
	return []string{"--cluster-signing-cert-file=" + k.authority.File, "--cluster-signing-key-file=" + strings.TrimSuffix(k.authority.File, ".crt") + ".key"}
}

// StartController starts a controller of Kubernetes, which hack/peers.sh builds, as its
// administrator, with further flags. The caller ends it.
func (k *Kube) StartController(name string, flags ...string) (*Process, error) {
	program, err := Peer(name)
	if err != nil {
		return nil, err
	}
	return Start(nil, program, append([]string{
		"--kubeconfig=" + k.Kubeconfig, "--authentication-kubeconfig=" + k.Kubeconfig, "--authorization-kubeconfig=" + k.Kubeconfig,
		"--secure-port=0", "--leader-elect=false",
	}, flags...)...)
}

func (k *Kube) startEtcd(dir string) (url string, err error) {
	program, err := Peer("etcd")
	if err != nil {
		return "", err
	}
	var urls [2]string // for clients, for peers
	for i := range urls {
		port, err := FreePort()
		if err != nil {
			return "", err
		}
		urls[i] = "http://" + net.JoinHostPort("127.0.0.1", port)
	}
	k.etcd, err = Start(nil, program, "--data-dir="+filepath.Join(dir, "etcd"),
		"--listen-client-urls="+urls[0], "--advertise-client-urls="+urls[0],
		"--listen-peer-urls="+urls[1], "--initial-advertise-peer-urls="+urls[1], "--initial-cluster=default="+urls[1])
	return urls[0], err
}

// writeFiles creates the certificates and keys.
func (k *Kube) writeFiles(dir, url string) error {
	_, err := WriteKey(filepath.Join(dir, "service-account.key"))
	return errors.Join(err,
		k.authority.Connection(k.Kubeconfig, url, "admin", "system:masters"),
		k.authority.Server(dir, "server", "kube-apiserver", "localhost", "127.0.0.1", "kubernetes.default.svc", kubernetesIP),
		k.authority.Client(dir, "nodes-client", "kube-apiserver-kubelet-client", "system:masters"))
}

func (k *Kube) startServer(dir, port string, flags []string) (err error) {
	file := func(name string) string { return filepath.Join(dir, name) }
	k.flags = append([]string{
		"--etcd-servers=" + k.Etcd, "--bind-address=127.0.0.1", "--secure-port=" + port,
		// It refuses a loopback address here; nothing connects to this one.
		"--advertise-address=192.0.2.10",
		"--tls-cert-file=" + file("server.crt"), "--tls-private-key-file=" + file("server.key"),
		"--client-ca-file=" + k.authority.File,
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority=" + k.authority.File,
		"--kubelet-client-certificate=" + file("nodes-client.crt"), "--kubelet-client-key=" + file("nodes-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + file("service-account.key"), "--service-account-signing-key-file=" + file("service-account.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
	}, flags...)
	k.server, err = Start(nil, k.program, k.flags...)
	return err
}

// Kill ends the server, and leaves etcd.
func (k *Kube) Kill() { k.server.Kill() }

// Signal sends the server a signal.
func (k *Kube) Signal(sig syscall.Signal) error { return k.server.Signal(sig) }

// Again starts the server again after Kill, with further flags, and returns when it is ready.
func (k *Kube) Again(ctx context.Context, flags ...string) (err error) {
	k.flags = append(k.flags, flags...)
	if k.server, err = Start(nil, k.program, k.flags...); err != nil {
		return err
	}
	return k.awaitReady(ctx)
}

// awaitReady waits until /readyz answers 200.
func (k *Kube) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, p := range []*Process{k.etcd, k.server} {
			select {
			case <-p.Exited():
				return false, fmt.Errorf("%s has ended:\n%s", p.cmd.Path, p.Output())
			default:
			}
		}
		status, body, err := Get(ctx, k.Config, "/readyz")
		if last = err; err == nil && status != http.StatusOK {
			last = fmt.Errorf("/readyz answers %d: %s", status, body)
		}
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// Cluster is the server's.
func (k *Kube) Cluster() Cluster { return Cluster{Server: k.Config.Host, Authority: k.authority} }

// Output is what the server has logged.
func (k *Kube) Output() string { return k.server.Output() }

// Stop ends them.
func (k *Kube) Stop() {
	for _, p := range []*Process{k.server, k.etcd} {
		if p != nil {
			p.Kill()
		}
	}
}
