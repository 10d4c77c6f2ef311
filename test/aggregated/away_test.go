package aggregated

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"svc.dev/svc/test/launch"
)

// The APIServices of this fleet name a port at which nothing listens.
var _ = Describe("a fleet that is gone", func() {
	const gone = "gone.example.com"

	It("is the only one that svc unregister removes without --force", func(ctx SpecContext) {
		binary, err := launch.Binary()
		Expect(err).NotTo(HaveOccurred())
		out, err := exec.CommandContext(ctx, binary, "unregister", "--group-domain="+domain, "--svcconfig="+host.kubeconfig).CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(out)).To(And(HavePrefix("svc unregister: the API servers of svc.dev answer ("), ContainSubstring("--force")))
		kubectl(onHost, "get", "configmaps.core.svc.dev", "-A")
	})

	It("makes only its own groups unavailable, and keeps namespaces from their end until it is unregistered", func(ctx SpecContext) {
		port, err := launch.FreePort()
		Expect(err).NotTo(HaveOccurred())
		names := createAPIServices(port, schema.GroupVersion{Group: "core." + gone, Version: "v1"}, schema.GroupVersion{Group: "apps." + gone, Version: "v1"})
		DeferCleanup(func() { kubectl(onHost, append([]string{"delete", "apiservice", "--ignore-not-found"}, names...)...) })

		By("the condition that names the cause")
		for _, name := range names {
			kubectl(onHost, "wait", "apiservice", name, "--for=condition=Available=False", "--timeout=3m")
			Eventually(out(onHost, "", "get", "apiservice", name, "-o", `jsonpath={.status.conditions[?(@.type=="Available")].message}`)).
				Should(ContainSubstring("failing or missing response from https://"))
		}
		Eventually(func() int {
			return send(ctx, host.config, launch.Request{Method: "GET", Path: "/apis/core." + gone + "/v1/pods"}).Status
		}).Should(Equal(http.StatusServiceUnavailable))

		By("the host and another fleet, which work on")
		n := newNamespace()
		kubectl(onHost, "create", "configmap", "of-host", "-n", n)
		kubectl(onFleet, "create", "configmap", "of-fleet", "-n", n)

		By("a namespace, whose content of all other groups is deleted")
		kubectl(onHost, "delete", "namespace", n, "--wait=false")
		condition := func() string {
			found, err := hostClient.CoreV1().Namespaces().Get(ctx, n, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			for _, c := range found.Status.Conditions {
				if c.Type == corev1.NamespaceDeletionDiscoveryFailure && c.Status == corev1.ConditionTrue {
					return c.Message
				}
			}
			return ""
		}
		Eventually(condition).Should(And(ContainSubstring("core."+gone+"/v1"), ContainSubstring("apps."+gone+"/v1"), Not(ContainSubstring("core."+domain))))
		Eventually(func() string {
			return kubectl(onHost, "get", "configmaps,configmaps.core.svc.dev", "-n", n, "-o", "name")
		}).ShouldNot(Or(ContainSubstring("of-host"), ContainSubstring("of-fleet")))

		By("the end of the namespace after svc unregister")
		binary, err := launch.Binary()
		Expect(err).NotTo(HaveOccurred())
		out, err := exec.CommandContext(ctx, binary, "unregister", "--group-domain="+gone, "--svcconfig="+host.kubeconfig).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(And(ContainSubstring("apiservice v1.core."+gone+" removed"), ContainSubstring("apiservice v1.apps."+gone+" removed")))
		Eventually(func() error { _, _, err := onHost.Run(ctx, "", "get", "namespace", n); return err }).Should(HaveOccurred())
		kubectl(onHost, "get", "configmaps.core.svc.dev", "-A") // the other fleet is registered
	})
})

// A second server of the suite's fleet, whose way to the host can be cut.
var _ = Describe("a fleet that does not reach its host", func() {
	It("authorizes nothing beyond what it remembers, says so, and recovers by itself", func(ctx SpecContext) {
		n := newNamespace()
		way := newWay(ctx)
		connection, err := clientcmd.LoadFromFile(filepath.Join(dir, "svc-apiserver"))
		Expect(err).NotTo(HaveOccurred())
		for _, cluster := range connection.Clusters {
			cluster.Server = "https://" + way.address
		}
		file := filepath.Join(dir, "cuttable")
		Expect(clientcmd.WriteToFile(*connection, file)).To(Succeed())
		port, err := launch.FreePort()
		Expect(err).NotTo(HaveOccurred())
		server := "https://127.0.0.1:" + port
		startServer(ctx, server, file, append(manifestArgs(ctx, "svc-apiserver", outsideOfPods(port)), "--etcd-prefix=/fleet"))

		kubectl(onHost, "create", "role", "dave", "-n", n, "--verb=get,list", "--resource=configmaps.core.svc.dev")
		kubectl(onHost, "create", "rolebinding", "dave", "-n", n, "--role=dave", "--user=dave")
		_, config := userOf("dave", "")
		direct := rest.CopyConfig(config)
		direct.Host = server
		list := func() launch.Response {
			return send(ctx, direct, launch.Request{Method: "GET", Path: "/apis/core.svc.dev/v1/namespaces/" + n + "/configmaps"})
		}
		Eventually(list).Should(HaveField("Status", http.StatusOK))

		way.cut()
		Eventually(list).Should(And(HaveField("Status", http.StatusInternalServerError), HaveField("Body", ContainSubstring(way.address))), "the error says what could not be asked")
		admin := rest.CopyConfig(host.config)
		admin.Host = server
		Expect(send(ctx, admin, launch.Request{Method: "GET", Path: "/apis/core.svc.dev/v1/namespaces/" + n + "/configmaps"}).Status).
			To(Equal(http.StatusOK), "system:masters needs no decision")
		away := send(ctx, admin, launch.Request{Method: "GET", Path: fleetPath + "/api/v1/namespaces/" + n})
		Expect(away.Status).To(Equal(http.StatusServiceUnavailable))
		Expect(away.Body).To(ContainSubstring("the host, whose namespaces these are, does not answer"))

		way.mend(ctx)
		Eventually(list).Should(HaveField("Status", http.StatusOK))
	})
})

var _ = Describe("the host's authorities", func() {
	const name = "extension-apiserver-authentication"
	// published returns an entry of the configuration of authentication that the host publishes.
	published := func(ctx context.Context, key string) string {
		GinkgoHelper()
		found, err := hostClient.CoreV1().ConfigMaps("kube-system").Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return found.Data[key]
	}
	// publish adds an authority to an entry until the end of the spec.
	publish := func(ctx context.Context, key string, authority *launch.Authority) {
		GinkgoHelper()
		write := func(content string) {
			patch, err := json.Marshal(object{"data": object{key: content}})
			Expect(err).NotTo(HaveOccurred())
			kubectl(onHost, "patch", "configmap", name, "-n", "kube-system", "--type=merge", "-p", string(patch))
		}
		before := published(ctx, key)
		added, err := os.ReadFile(authority.File)
		Expect(err).NotTo(HaveOccurred())
		block, _ := pem.Decode(added)
		Expect(block).NotTo(BeNil())
		write(before + string(pem.EncodeToMemory(block)))
		DeferCleanup(func() { write(before) })
	}
	// connect returns a connection to the fleet's server with a certificate by another authority.
	connect := func(user string) (*launch.Authority, *rest.Config) {
		GinkgoHelper()
		otherDir := GinkgoT().TempDir()
		other, err := launch.NewAuthority(otherDir)
		Expect(err).NotTo(HaveOccurred())
		connection := filepath.Join(otherDir, "connection")
		Expect(other.Connection(connection, backendURL, user)).To(Succeed())
		config, err := clientcmd.BuildConfigFromFlags("", connection)
		Expect(err).NotTo(HaveOccurred())
		config.CAFile, config.CAData = host.authority.File, nil
		return other, config
	}

	It("are read again when the host has others for clients", func(ctx SpecContext) {
		other, config := connect("zoe")
		answer := func() string {
			return send(ctx, config, launch.Request{Method: "GET", Path: "/apis/core.svc.dev/v1/nodes"}).Body
		}
		Expect(answer()).NotTo(ContainSubstring("zoe"))
		publish(ctx, "client-ca-file", other)
		Eventually(answer).Should(ContainSubstring(`User \"zoe\" cannot list resource \"nodes\"`))
	})

	It("are read again when the host has others for its proxies", func(ctx SpecContext) {
		var allowed []string
		Expect(json.Unmarshal([]byte(published(ctx, "requestheader-allowed-names")), &allowed)).To(Succeed())
		proxy := "front-proxy"
		if len(allowed) > 0 { // without a name, every one is allowed
			proxy = allowed[0]
		}
		other, config := connect(proxy)
		answer := func() string {
			return send(ctx, config, launch.Request{Method: "GET", Path: "/apis/core.svc.dev/v1/nodes", Header: map[string]string{"X-Remote-User": "yara"}}).Body
		}
		Expect(answer()).NotTo(ContainSubstring("yara"))
		publish(ctx, "requestheader-client-ca-file", other)
		Eventually(answer).Should(ContainSubstring(`User \"yara\" cannot list resource \"nodes\"`))

		By("the host's own proxy, which is accepted as before")
		kubectl(onHost, "get", "nodes.core.svc.dev")
	})
})

// way forwards connections to the host until it is cut.
type way struct {
	address, to string
	mu          sync.Mutex
	listener    net.Listener
	open        []net.Conn
}

// newWay returns a way to the host that exists until the end of the spec.
func newWay(ctx context.Context) *way {
	GinkgoHelper()
	to, err := url.Parse(host.config.Host)
	Expect(err).NotTo(HaveOccurred())
	port, err := launch.FreePort() // to which it can come back
	Expect(err).NotTo(HaveOccurred())
	w := &way{to: to.Host, address: net.JoinHostPort("127.0.0.1", port)}
	w.mend(ctx)
	DeferCleanup(w.cut)
	return w
}

// mend accepts connections, at the address that it had before.
func (w *way) mend(ctx context.Context) {
	GinkgoHelper()
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", w.address)
	Expect(err).NotTo(HaveOccurred())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listener, w.address = listener, listener.Addr().String()
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", w.to)
			if err != nil {
				_ = from.Close()
				continue
			}
			w.mu.Lock()
			if w.listener == listener {
				w.open = append(w.open, from, to)
			} else { // it was cut meanwhile
				_, _ = from.Close(), to.Close()
			}
			w.mu.Unlock()
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1]) // until either end closes
					_ = pair[0].Close()
				}()
			}
		}
	}()
}

// cut closes all connections, and refuses others.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener == nil {
		return
	}
	_ = w.listener.Close()
	w.listener = nil
	for _, c := range w.open {
		_ = c.Close()
	}
	w.open = nil
}
