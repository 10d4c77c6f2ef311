package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"svc.dev/svc/apiserver/pki"
)

// TestTheFlagsOfKubeadmAreAccepted starts an API server by the flags that kubeadm writes in
// the manifest of kube-apiserver, at a port that is in use: that is the only mistake.
func TestTheFlagsOfKubeadmAreAccepted(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.Open(pki.Config{Dir: filepath.Join(dir, "pki"), ServiceIPs: []net.IP{net.IPv4(10, 96, 0, 1)}}); err != nil {
		t.Fatal(err)
	}
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	_, port, err := net.SplitHostPort(used.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	flags := strings.NewReplacer("PKI", filepath.Join(dir, "pki"), "PORT", port).Replace(`
		--advertise-address=192.0.2.10
		--allow-privileged=true
		--authorization-mode=Node,RBAC
		--client-ca-file=PKI/ca.crt
		--enable-admission-plugins=NodeRestriction
		--enable-bootstrap-token-auth=true
		--etcd-cafile=PKI/ca.crt
		--etcd-certfile=PKI/admin.crt
		--etcd-keyfile=PKI/admin.key
		--etcd-servers=https://127.0.0.1:2379
		--kubelet-client-certificate=PKI/apiserver-kubelet-client.crt
		--kubelet-client-key=PKI/apiserver-kubelet-client.key
		--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname
		--proxy-client-cert-file=PKI/front-proxy-client.crt
		--proxy-client-key-file=PKI/front-proxy-client.key
		--requestheader-allowed-names=front-proxy-client
		--requestheader-client-ca-file=PKI/front-proxy-ca.crt
		--requestheader-extra-headers-prefix=X-Remote-Extra-
		--requestheader-group-headers=X-Remote-Group
		--requestheader-username-headers=X-Remote-User
		--secure-port=PORT
		--service-account-issuer=https://kubernetes.default.svc.cluster.local
		--service-account-key-file=PKI/sa.pub
		--service-account-signing-key-file=PKI/sa.key
		--service-cluster-ip-range=10.96.0.0/12
		--tls-cert-file=PKI/apiserver.crt
		--tls-private-key-file=PKI/apiserver.key`)
	var out, errOut strings.Builder
	code := run(append([]string{"apiserver", "--bind-address=127.0.0.1"}, strings.Fields(flags)...), &out, &errOut)
	lines := strings.Split(strings.TrimSpace(errOut.String()), "\n") // before the last one, etcd's client has logged
	if want := "svc apiserver: cannot listen on 127.0.0.1:" + port + ": "; code != 1 || !strings.HasPrefix(lines[len(lines)-1], want) {
		t.Errorf("exit code %d, %s, want %s", code, errOut.String(), want)
	}
}
