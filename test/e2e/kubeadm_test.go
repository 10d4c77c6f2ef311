package e2e

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/apiserver/pki"
	"svc.dev/svc/test/launch"
)

var _ = Describe("svc apiserver", func() {
	It("accepts the flags of the manifest that kubeadm writes: a port that is in use is the only mistake", func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		_, err = pki.Open(pki.Config{Dir: filepath.Join(dir, "pki"), ServiceIPs: []net.IP{net.IPv4(10, 96, 0, 1)}})
		Expect(err).NotTo(HaveOccurred())
		used, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(used.Close)
		_, port, err := net.SplitHostPort(used.Addr().String())
		Expect(err).NotTo(HaveOccurred())
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
		binary, err := launch.Binary()
		Expect(err).NotTo(HaveOccurred())
		process, err := launch.Start(nil, binary, append([]string{"apiserver", "--bind-address=127.0.0.1"}, strings.Fields(flags)...)...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(process.Kill)
		Expect(process.Wait(ctx)).To(Equal(1), process.Output())
		lines := strings.Split(strings.TrimSpace(process.Output()), "\n")
		lines = slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "svc apiserver: ") }) // etcd's client logs, too
		Expect(lines).To(ConsistOf(HavePrefix("svc apiserver: cannot listen on 127.0.0.1:" + port + ": ")))
	})
})
