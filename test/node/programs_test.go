package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"

	"svc.dev/svc/test/launch"
)

// Programs that many clusters have, as pods with client-go's configuration for pods. They
// are built by hack/peers.sh kube-state-metrics cert-manager traefik coredns.
var _ = Describe("as a pod", func() {
	BeforeEach(func() {
		if os.Getenv("PROGRAMS") == "" {
			Skip("takes many minutes to build: run PROGRAMS=true make test-node")
		}
	})

	// load gives the node an image that runs a program.
	load := func(ctx context.Context, program string) {
		GinkgoHelper()
		image, err := launch.PeerImage("localhost/svc/"+program+":1", program)
		Expect(err).NotTo(HaveOccurred())
		archive := filepath.Join(newDir(), "image.tar")
		Expect(image.WriteFile(archive)).To(Succeed())
		Expect(importImages(ctx, archive)).To(ContainSubstring(image.Name))
	}

	It("kube-state-metrics counts the objects of the cluster", func(ctx SpecContext) {
		load(ctx, "kube-state-metrics")
		s := newSpace(ctx)
		DeferCleanup(func(ctx SpecContext) { run(ctx, "delete", "clusterrolebinding", s.name, "--ignore-not-found") })
		s.run(ctx, "create", "serviceaccount", "metrics")
		run(ctx, "create", "clusterrolebinding", s.name, "--clusterrole=view", "--serviceaccount="+s.name+":metrics")
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: metrics, labels: {app: metrics}}
spec:
  serviceAccountName: metrics
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/kube-state-metrics:1
    args: [--resources=pods, --namespaces=${NAMESPACE}]
    readinessProbe: {httpGet: {path: /readyz, port: 8081}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: metrics}
spec: {selector: {app: metrics}, ports: [{port: 80, targetPort: 8080}]}
---`+sleeper("client", ""))
		s.await(ctx, "metrics", beReady())
		s.await(ctx, "client", beReady())
		Eventually(func() string { return s.exec(ctx, "client", "wget -q -O - http://metrics/metrics || true") }).Should(And(
			MatchRegexp(`kube_pod_info\{namespace="`+s.name+`",pod="client",.*node="`+nodeName()+`"`),
			MatchRegexp(`kube_pod_status_phase\{namespace="`+s.name+`",pod="metrics",.*phase="Running"\} 1`)))
	})

	It("cert-manager issues certificates", func(ctx SpecContext) {
		load(ctx, "cert-manager")
		s := newSpace(ctx)
		definitions, err := launch.CertManagerDefinitions(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, manifest := range definitions {
			_, errOut, err := kubectl.Run(ctx, manifest, "apply", "--server-side", "--filename=-")
			Expect(err).NotTo(HaveOccurred(), errOut)
		}
		DeferCleanup(func(ctx SpecContext) {
			run(ctx, "delete", "clusterrolebinding", s.name, "--ignore-not-found")
			out := run(ctx, "get", "crd", "-o=name")
			for _, name := range strings.Fields(out) {
				if strings.HasSuffix(name, "cert-manager.io") {
					run(ctx, "delete", name)
				}
			}
		})
		s.run(ctx, "create", "serviceaccount", "cert-manager")
		run(ctx, "create", "clusterrolebinding", s.name, "--clusterrole=cluster-admin", "--serviceaccount="+s.name+":cert-manager")
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: cert-manager}
spec:
  serviceAccountName: cert-manager
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/cert-manager:1
    args: ["--cluster-resource-namespace=${NAMESPACE}", "--leader-election-namespace=${NAMESPACE}"]
    env: [{name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: own}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web}
spec: {secretName: web-tls, commonName: web.example.com, dnsNames: [web.example.com], issuerRef: {name: own, kind: Issuer}}
`)
		s.run(ctx, "wait", "certificate/web", "--for=condition=Ready", "--timeout=3m")
		Expect(s.run(ctx, "get", "secret", "web-tls", "-o=jsonpath={.type} {.data.tls\\.crt}")).To(MatchRegexp(`^kubernetes.io/tls \S+`))
		Expect(s.run(ctx, "get", "certificate", "web")).To(MatchRegexp(`web +True +web-tls`))
	})

	It("Traefik serves Ingresses, as docs/ingress.md installs it", func(ctx SpecContext) {
		load(ctx, "traefik")
		content, err := os.ReadFile("../../config/samples/ingress/traefik.yaml")
		Expect(err).NotTo(HaveOccurred())
		manifest := strings.NewReplacer("docker.io/library/traefik:v2.11.0", "localhost/svc/traefik:1", "port: 80,", "port: 8095,", "port: 443,", "port: 8096,").Replace(string(content))
		_, errOut, err := kubectl.Run(ctx, manifest, "apply", "--filename=-")
		Expect(err).NotTo(HaveOccurred(), errOut)
		DeferCleanup(func(ctx SpecContext) {
			_, errOut, err := kubectl.Run(ctx, manifest, "delete", "--filename=-", "--timeout=2m")
			Expect(err).NotTo(HaveOccurred(), errOut)
		})
		run(ctx, "rollout", "status", "--namespace=traefik", "deployment/traefik", "--timeout=2m")

		s := newSpace(ctx)
		certificate, key, err := cert.GenerateSelfSignedCertKey("web.example.com", nil, nil)
		Expect(err).NotTo(HaveOccurred())
		dir := newDir()
		Expect(os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)).To(Succeed())
		s.run(ctx, "create", "secret", "tls", "web-tls", "--cert="+filepath.Join(dir, "tls.crt"), "--key="+filepath.Join(dir, "tls.key"))
		s.apply(ctx, labelled(webServer("one", ""))+`
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  tls: [{hosts: [web.example.com], secretName: web-tls}]
  rules:
  - host: web.example.com
    http: {paths: [{path: /, pathType: Exact, backend: {service: {name: web, port: {number: 80}}}}]}
`)
		node := s.await(ctx, "one", beReady()).Status.HostIP
		// request asks Traefik for a path of web.example.com.
		request := func(scheme, port, path string) (int, string, error) {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(certificate)
			transport := &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
				DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(node, port))
				},
			}
			defer transport.CloseIdleConnections()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://web.example.com"+path, nil)
			Expect(err).NotTo(HaveOccurred())
			resp, err := (&http.Client{Transport: transport}).Do(req)
			if err != nil {
				return 0, "", err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return resp.StatusCode, string(body), err
		}
		for _, entry := range []struct{ scheme, port string }{{"http", "8095"}, {"https", "8096"}} {
			Eventually(func(g Gomega) {
				code, body, err := request(entry.scheme, entry.port, "/")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(code).To(Equal(http.StatusOK), entry.scheme)
				g.Expect(body).To(Equal("one\n"))
			}).Should(Succeed())
		}
		Eventually(func() string {
			return s.run(ctx, "get", "ingress", "web", "-o=jsonpath={.status.loadBalancer.ingress[*].ip}")
		}).Should(ContainSubstring(node))

		By("a path that is added")
		code, _, err := request("http", "8095", "/ready")
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusNotFound))
		s.run(ctx, "patch", "ingress", "web", "--type=json", `-p=[{"op":"add","path":"/spec/rules/0/http/paths/-","value":{"path":"/ready","pathType":"Exact","backend":{"service":{"name":"web","port":{"number":80}}}}}]`)
		Eventually(func() int {
			code, _, _ := request("http", "8095", "/ready")
			return code
		}).Should(Equal(http.StatusOK))
	})

	It("CoreDNS answers names in place of the node, as docs/dns.md installs it", func(ctx SpecContext) {
		other, err := launch.UpNode(ctx, filepath.Join(newDir(), "data"), "--dns=false")
		DeferCleanup(func() { Expect(other.Remove()).To(Succeed()) })
		Expect(err).NotTo(HaveOccurred())
		program, err := launch.PeerImage("localhost/svc/coredns:1", "coredns")
		Expect(err).NotTo(HaveOccurred())
		archive := filepath.Join(newDir(), "coredns.tar")
		Expect(program.WriteFile(archive)).To(Succeed())
		for _, file := range []string{archive, filepath.Join(dir, "busybox.tar"), filepath.Join(dir, "server.tar")} {
			out, err := exec.CommandContext(ctx, svc, "image", "import", "--data-dir="+other.DataDir, file).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(out))
		}
		content, err := os.ReadFile("../../config/samples/dns/coredns.yaml")
		Expect(err).NotTo(HaveOccurred())
		image := regexp.MustCompile(`docker.io/coredns/coredns:[0-9.]+`)
		Expect(string(content)).To(MatchRegexp(image.String()))
		k := launch.Kubectl{Kubeconfig: other.Kubeconfig, Home: newDir()}
		feed := func(stdin string, args ...string) string {
			GinkgoHelper()
			out, errOut, err := k.Run(ctx, stdin, args...)
			Expect(err).NotTo(HaveOccurred(), errOut)
			return out
		}
		feed(image.ReplaceAllString(string(content), "localhost/svc/coredns:1"), "apply", "--filename=-")
		feed("", "rollout", "status", "--namespace=kube-system", "deployment/coredns", "--timeout=3m")
		Eventually(func() error { // after the service account has been created
			_, _, err := k.Run(ctx, labelled(webServer("web", "")), "apply", "--filename=-")
			return err
		}).Should(Succeed())
		feed("", "expose", "pod", "web", "--port=80", "--target-port=8080")
		// A pod that starts before CoreDNS answers has the node's resolvers.
		Eventually(func() string {
			return feed("", "get", "endpointslices", "--namespace=kube-system", "--selector=kubernetes.io/service-name=kube-dns", "-o=jsonpath={.items[*].endpoints[*].conditions.ready}")
		}).Should(Equal("true"))
		feed(sleeper("client", ""), "apply", "--filename=-")
		feed("", "wait", "--for=condition=Ready", "pod/web", "pod/client", "--timeout=3m")
		Expect(feed("", "exec", "client", "--", "cat", "/etc/resolv.conf")).To(ContainSubstring("search default.svc.cluster.local"))
		Eventually(func() string {
			out, _, _ := k.Run(ctx, "", "exec", "client", "--", "sh", "-c", "wget -q -O - http://web/ || true")
			return out
		}).Should(Equal("web\n"))
	})
})
