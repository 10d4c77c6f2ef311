package node

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// The API servers of these specs listen at 127.0.0.1.
var _ = Describe("an API server at a loopback address", func() {
	// endpoint returns the only endpoint of the service kubernetes.
	endpoint := func(ctx context.Context, c ctrlclient.Client) string {
		GinkgoHelper()
		var slice discoveryv1.EndpointSlice
		Eventually(func() error {
			return c.Get(ctx, ctrlclient.ObjectKey{Namespace: "default", Name: "kubernetes"}, &slice)
		}).Should(Succeed())
		Expect(slice.Endpoints).To(HaveLen(1))
		Expect(slice.Ports).To(HaveLen(1))
		return net.JoinHostPort(slice.Endpoints[0].Addresses[0], strconv.Itoa(int(*slice.Ports[0].Port)))
	}
	// at returns the configuration of clients that connect to an address.
	at := func(config *rest.Config, address string) *rest.Config {
		moved := rest.CopyConfig(config)
		moved.Host = "https://" + address
		return moved
	}

	It("is served at the node's bridge, too, with a certificate for it, as the endpoint of the service kubernetes", func(ctx SpecContext) {
		address := endpoint(ctx, client)
		Eventually(func() (string, error) {
			_, body, err := launch.Get(ctx, at(node.Config, address), "/readyz")
			return body, err
		}).Should(Equal("ok"))
		s := newSpace(ctx)
		s.apply(ctx, sleeper("client", ""))
		s.await(ctx, "client", container("main", running()))
		host, port, err := net.SplitHostPort(address)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.exec(ctx, "client", `printf 'GET / HTTP/1.0\r\n\r\n' | nc `+host+" "+port)).To(ContainSubstring("Client sent an HTTP request to an HTTPS server"))
	})

	It("is reached by pods of a cluster whose services have addresses of IPv6 only, and they reach themselves", func(ctx SpecContext) {
		if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
			Skip("this machine has no IPv6")
		}
		other, err := launch.UpNode(ctx, filepath.Join(newDir(), "data"), "--service-cluster-ip-range=fd6b:7c1e:52a0::/112", "--pod-cidr=fd6b:7c1e:52a1::/64")
		DeferCleanup(func() { Expect(other.Remove()).To(Succeed()) })
		Expect(err).NotTo(HaveOccurred())
		out, err := exec.CommandContext(ctx, svc, "image", "import", "--data-dir="+other.DataDir, filepath.Join(dir, "busybox.tar")).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		c, err := clientOf(other.Config)
		Expect(err).NotTo(HaveOccurred())

		address := endpoint(ctx, c)
		Expect(address).To(HavePrefix("[fd6b:7c1e:52a1::1]:"))
		Eventually(func() (string, error) {
			_, body, err := launch.Get(ctx, at(other.Config, address), "/readyz")
			return body, err
		}).Should(Equal("ok"))
		k := launch.Kubectl{Kubeconfig: other.Kubeconfig, Home: newDir()}
		Eventually(func() error {
			_, _, err := k.Run(ctx, peer("client")+"\n---\napiVersion: v1\nkind: Service\nmetadata: {name: itself}\nspec: {selector: {pod: client}, ports: [{port: 8080, targetPort: 80}]}\n", "apply", "--namespace=default", "--filename=-")
			return err
		}).Should(Succeed())
		Eventually(func() (string, error) {
			out, errOut, err := k.Run(ctx, "", "exec", "--namespace=default", "client", "--", "sh", "-c", `printf 'GET / HTTP/1.0\r\n\r\n' | nc $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT`)
			return out + errOut, err
		}).Should(ContainSubstring("Client sent an HTTP request to an HTTPS server"))
		Eventually(func() (string, error) {
			out, errOut, err := k.Run(ctx, "", "exec", "--namespace=default", "client", "--", "sh", "-c", "timeout 2 wget -q -O - http://itself:8080/")
			return out + errOut, err
		}).Should(Equal("client\n"))
	})
})
