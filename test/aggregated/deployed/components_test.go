package deployed

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/test/launch"
)

// The components of config/ that the fleet of the other specs is without.
var _ = Describe("a fleet with components", func() {
	It("external-etcd, host-lease, monitoring and namespace-scoped has its data elsewhere, its leader's lease at the host, and some namespaces", func(ctx SpecContext) {
		before := inventory(ctx)
		url, authority := startExternalEtcd(ctx)
		manifests := renderPatched(ctx, root, "", []map[string]any{
			{"target": map[string]string{"kind": "Deployment", "name": "svc-apiserver"},
				"patch": `[{"op": "replace", "path": "/spec/template/spec/containers/0/args/1", "value": "--etcd-servers=` + url + `"}]`},
			{"target": map[string]string{"kind": "ConfigMap", "name": "svc-namespaces"},
				"patch": `[{"op": "replace", "path": "/data/namespaces", "value": "team-a"}]`},
		}, "external-etcd", "host-lease", "monitoring", "namespace-scoped")
		undeploy := undeployOnce(manifests)
		kubectl(onHost, "create", "namespace", "svc-system")
		Expect(authority.Client(dir, "external-etcd", "svc-apiserver")).To(Succeed())
		kubectl(onHost, "create", "secret", "generic", "svc-etcd-client", "-n", "svc-system", "--from-file=ca.crt="+authority.File,
			"--from-file=tls.crt="+filepath.Join(dir, "external-etcd.crt"), "--from-file=tls.key="+filepath.Join(dir, "external-etcd.key"))
		for _, name := range []string{"team-a", "team-b"} {
			kubectl(onHost, "create", "namespace", name)
			DeferCleanup(func() { kubectl(onHost, "delete", "namespace", name, "--ignore-not-found", "--timeout=2m") })
		}
		install(ctx, "--server-side", "--force-conflicts", "-f", manifests)
		connectFleet(ctx)

		By("no etcd is installed")
		Expect(kubectl(onHost, "get", "statefulsets,persistentvolumeclaims", "-n", "svc-system", "-o", "name")).To(BeEmpty())
		By("the controllers work in the namespaces that are named")
		kubectl(onHost, "create", "rolebinding", "svc-controller-manager", "-n", "team-a", "--clusterrole=svc-controller-manager-fleet", "--serviceaccount=svc-system:svc-controller-manager")
		kubectl(onFleet, "create", "deployment", "web", "-n", "team-a", "--image=registry.example.com/web")
		Eventually(func() string { return kubectl(onFleet, "get", "pods", "-n", "team-a", "-o", "name") }).Should(HavePrefix("pod/web-"))
		_, stderr, err := onFleet.Run(ctx, "", "create", "deployment", "web", "-n", "team-b", "--image=registry.example.com/web")
		Expect(err).To(HaveOccurred())
		Expect(stderr).To(ContainSubstring(`"team-b"`))
		By("their leader has a lease at the host")
		Expect(kubectl(onHost, "get", "lease", "svc-controller-manager", "-n", "svc-system", "-o", "jsonpath={.spec.holderIdentity}")).To(HavePrefix("svc-controller-manager-"))
		By("Grafana's sidecar and Prometheus find the dashboard and the alerts, and Prometheus the metrics that they use")
		Expect(kubectl(onHost, "get", "configmaps", "-n", "svc-system", "-l", "grafana_dashboard=1", "-o", "name")).To(Equal("configmap/svc-dashboard\n"))
		Expect(kubectl(onHost, "get", "configmaps", "-n", "svc-system", "-l", "prometheus_rule=1", "-o", "name")).To(Equal("configmap/svc-alerts\n"))
		Expect(kubectl(onFleet, "get", "--raw", "/metrics")).To(ContainSubstring("\napiserver_request_total{"))

		undeploy(ctx)
		kubectl(onHost, "delete", "namespace", "team-a", "team-b", "--timeout=2m")
		awaitInventory(ctx, before)
	})

	It("cert-manager and emptydir has the certificates that cert-manager makes, and loses no request when they are renewed", func(ctx SpecContext) {
		if os.Getenv("PROGRAMS") == "" {
			Skip("takes many minutes to build: run PROGRAMS=true make test-aggregated HOST=pods")
		}
		startCertManager(ctx)
		before := inventory(ctx)
		manifests := render(ctx, root, "", "cert-manager", "emptydir")
		undeploy := undeployOnce(manifests)
		install(ctx, "--server-side", "--force-conflicts", "-f", manifests)
		connectFleet(ctx)
		Expect(kubectl(onHost, "get", "persistentvolumeclaims", "-n", "svc-system", "-o", "name")).To(BeEmpty())

		By("the API servers cannot change what cert-manager makes")
		for _, args := range [][]string{{"update", "secrets", "-n", "svc-system"}, {"create", "secrets", "-n", "svc-system"}, {"patch", "apiservices"}} {
			stdout, _, _ := onHost.Run(ctx, "", append([]string{"auth", "can-i", "--as=system:serviceaccount:svc-system:svc-apiserver"}, args...)...)
			Expect(stdout).To(Equal("no\n"), "%v", args)
		}

		By("every API server takes a renewed certificate, and connects to etcd with one")
		kubectl(onHost, "rollout", "status", "-n", "svc-system", "deployment/svc-apiserver", "--timeout=2m")
		served := servedCertificates(ctx)
		Expect(served).To(HaveLen(2))
		traffic := startTraffic(ctx)
		for _, name := range []string{"svc-serving", "svc-etcd-server", "svc-etcd-client"} {
			kubectl(onHost, "patch", "certificate", name, "-n", "svc-system", "--subresource=status", "--type=merge", "-p",
				`{"status":{"conditions":[{"type":"Issuing","status":"True","reason":"ManuallyTriggered","message":"renew","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
		}
		Eventually(func() []string { return servedCertificates(ctx) }).Should(And(HaveLen(2), Not(ContainElement(BeElementOf(served)))))
		traffic.awaitProgress()
		traffic.stop(ctx)
		Expect(traffic.failures).To(BeEmpty())
		Expect(traffic.hostFailures).To(BeEmpty())

		By("the backup finds the certificate of a client of etcd")
		script(ctx, "hack/backup.sh", filepath.Join(dir, "cert-manager.db"))

		undeploy(ctx)
		kubectl(onHost, "delete", "namespace", loadNamespace, "--timeout=2m")
		awaitInventory(ctx, before)
	})
})

// startExternalEtcd starts an etcd outside of the host cluster, which accepts clients
// with a certificate of an authority, and returns its URL.
func startExternalEtcd(ctx context.Context) (string, *launch.Authority) {
	GinkgoHelper()
	program, err := launch.Peer("etcd")
	Expect(err).NotTo(HaveOccurred())
	files := filepath.Join(dir, "external-etcd-files")
	Expect(os.Mkdir(files, 0o700)).To(Succeed())
	authority, err := launch.NewAuthority(files)
	Expect(err).NotTo(HaveOccurred())
	Expect(authority.Server(files, "server", "etcd", address)).To(Succeed())
	var ports [2]string // for clients, for members
	for i := range ports {
		ports[i], err = launch.FreePort()
		Expect(err).NotTo(HaveOccurred())
	}
	url, peers := "https://"+net.JoinHostPort(address, ports[0]), "http://"+net.JoinHostPort("127.0.0.1", ports[1])
	etcd, err := launch.Start(nil, program, "--data-dir="+filepath.Join(files, "data"),
		"--listen-client-urls="+url, "--advertise-client-urls="+url, "--client-cert-auth", "--trusted-ca-file="+authority.File,
		"--cert-file="+filepath.Join(files, "server.crt"), "--key-file="+filepath.Join(files, "server.key"),
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(etcd.Kill)
	return url, authority
}

// startCertManager installs cert-manager in the host: its definitions, and as programs
// beside it its controller and the injector of authorities.
func startCertManager(ctx context.Context) {
	GinkgoHelper()
	definitions, err := launch.CertManagerDefinitions(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, manifest := range definitions {
		apply(onHost, manifest, "apply", "--server-side", "-f", "-")
	}
	DeferCleanup(func() {
		for _, name := range strings.Fields(kubectl(onHost, "get", "crd", "-o", "name")) {
			if strings.HasSuffix(name, "cert-manager.io") {
				kubectl(onHost, "delete", name)
			}
		}
	})
	for program, flags := range map[string][]string{
		"cert-manager": {"--metrics-listen-address=127.0.0.1:0", "--cluster-resource-namespace=svc-system"},
		"cainjector":   nil,
	} {
		path, err := launch.Peer(program)
		Expect(err).NotTo(HaveOccurred())
		process, err := launch.Start(nil, path, append([]string{"--kubeconfig=" + kube.Kubeconfig, "--leader-elect=false"}, flags...)...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() {
			if CurrentSpecReport().Failed() {
				AddReportEntry("log of "+program, tail(process.Output()))
			}
			process.Kill()
		})
	}
}

// servedCertificates returns the serial numbers of the certificates that the API servers
// present to clients.
func servedCertificates(ctx context.Context) []string {
	GinkgoHelper()
	pods, err := hostClient.CoreV1().Pods("svc-system").List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=svc-apiserver"})
	Expect(err).NotTo(HaveOccurred())
	var serials []string
	for _, pod := range pods.Items {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // whose certificate it is decides the spec
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, "6443"))
		Expect(err).NotTo(HaveOccurred())
		serials = append(serials, fmt.Sprint(conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber))
		Expect(conn.Close()).To(Succeed())
	}
	return serials
}
