package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// They run in order, because the second replaces the cluster's DNS server.
var _ = Describe("a name", Ordered, func() {
	var s space
	BeforeAll(func(ctx SpecContext) {
		s = newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: peers}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: elsewhere}
spec: {type: ExternalName, externalName: www.outside.example}
---
`+labelled(webServer("one", "hostname: one, subdomain: peers"))+"\n---\n"+labelled(webServer("two", "hostname: two, subdomain: peers"))+"\n---\n"+sleeper("client", ""))
		for _, name := range []string{"one", "two", "client"} {
			s.await(ctx, name, beReady())
		}
	})

	// lookup returns what nslookup in a pod prints, all in one line.
	lookup := func(ctx context.Context, args string) func() string {
		return func() string {
			out := s.exec(ctx, "client", "nslookup "+args+" 2>&1 || true")
			return strings.Join(strings.Fields(out), " ")
		}
	}
	// ask returns the status of a request of a pod, whose resolver uses the search domains.
	ask := func(ctx context.Context, url string) func() (string, error) {
		return func() (string, error) { return s.try(ctx, "exec", "one", "--", "/server", "--ask="+url) }
	}

	It("of a service, of its pods and of an address is answered in pods", func(ctx SpecContext) {
		server := s.run(ctx, "get", "service", "kube-dns", "--namespace=kube-system", "-o=jsonpath={.spec.clusterIP}")
		Expect(server).To(HaveSuffix(".10"))
		Expect(s.exec(ctx, "client", "cat /etc/resolv.conf")).To(And(
			ContainSubstring("nameserver "+server+"\n"), ContainSubstring("search "+s.name+".svc.cluster.local svc.cluster.local cluster.local")))
		ip := s.run(ctx, "get", "service", "web", "-o=jsonpath={.spec.clusterIP}")
		one, err := s.get(ctx, "one")
		Expect(err).NotTo(HaveOccurred())
		two, err := s.get(ctx, "two")
		Expect(err).NotTo(HaveOccurred())

		full := ".%s." + s.name + ".svc.cluster.local"
		for _, url := range []string{"http://web/", "http://web." + s.name + "/", fmt.Sprintf("http://one"+full+":8080/", "peers"), "http://two.peers:8080/"} {
			Eventually(ask(ctx, url)).Should(Equal("200 OK\n"), url)
		}
		Expect(lookup(ctx, "-type=a "+fmt.Sprintf("peers.%s.svc.cluster.local", s.name))()).To(And(ContainSubstring(one.Status.PodIP), ContainSubstring(two.Status.PodIP)))
		Expect(lookup(ctx, "-type=srv "+fmt.Sprintf("_http._tcp"+full, "peers"))()).To(And(ContainSubstring("10 100 8080 one.peers."), ContainSubstring("10 100 8080 two.peers.")))
		Expect(lookup(ctx, ip)()).To(ContainSubstring("web." + s.name + ".svc.cluster.local"))
		Expect(lookup(ctx, one.Status.PodIP)()).To(ContainSubstring("one.peers." + s.name + ".svc.cluster.local"))
		Expect(lookup(ctx, "absent."+s.name+".svc.cluster.local")()).To(ContainSubstring("NXDOMAIN"))

		By("no warning about missing name servers")
		Expect(s.events(ctx, "client")()).NotTo(ContainElement(HavePrefix("MissingClusterDNS")))
		By("on the node, by TCP")
		resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(server, "53"))
		}}
		Expect(resolver.LookupHost(ctx, "web."+s.name+".svc.cluster.local.")).To(Equal([]string{ip}))
	})

	It("of another domain is answered by the machine's resolvers, and by a DNS server of the user's as soon as it has endpoints", func(ctx SpecContext) {
		outside := serveDNS(ctx, net.JoinHostPort(fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250)), "53"), "192.0.2.53")
		host, _, err := net.SplitHostPort(outside)
		Expect(err).NotTo(HaveOccurred())
		before, err := os.ReadFile(resolvConf)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(resolvConf, []byte("nameserver "+host+"\n"), 0o644)).To(Succeed())
		DeferCleanup(os.WriteFile, resolvConf, before, os.FileMode(0o644))
		Eventually(lookup(ctx, "-type=a www.outside.example")).Should(ContainSubstring("192.0.2.53"))
		Eventually(lookup(ctx, fmt.Sprintf("-type=a elsewhere.%s.svc.cluster.local", s.name))).Should(And(
			ContainSubstring("www.outside.example"), ContainSubstring("192.0.2.53")))

		one, err := s.get(ctx, "one")
		Expect(err).NotTo(HaveOccurred())
		users := serveDNS(ctx, net.JoinHostPort(one.Status.HostIP, "0"), "192.0.2.99")
		_, port, err := net.SplitHostPort(users)
		Expect(err).NotTo(HaveOccurred())
		number, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
		Expect(err).NotTo(HaveOccurred())
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "users-dns", Labels: map[string]string{discoveryv1.LabelServiceName: "kube-dns"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{one.Status.HostIP}}},
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("dns"), Port: ptr.To(int32(number)), Protocol: ptr.To(corev1.ProtocolUDP)}},
		}
		Expect(client.Create(ctx, slice)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, slice))).To(Succeed()) })
		Eventually(lookup(ctx, "-type=a www.outside.example")).Should(ContainSubstring("192.0.2.99"))
		By("and by the node again when it has none")
		Expect(client.Delete(ctx, slice)).To(Succeed())
		Eventually(lookup(ctx, "-type=a www.outside.example")).Should(ContainSubstring("192.0.2.53"))
	})

	It("is answered at the same port after a restart", func(ctx SpecContext) {
		file := filepath.Join(node.DataDir, "svclet", "dns-port")
		before, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		_, err = node.Stop(launch.Patience)
		Expect(err).NotTo(HaveOccurred())
		Expect(node.Again(ctx)).To(Succeed())
		connect()
		Eventually(ask(ctx, "http://web/")).Should(Equal("200 OK\n"))
		Expect(os.ReadFile(file)).To(Equal(before))
	})
})

// serveDNS starts a DNS server of UDP that answers every question about an IPv4 address
// with the same one, and ends it after the spec. It returns where it listens.
func serveDNS(ctx context.Context, listen, address string) string {
	GinkgoHelper()
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", listen)
	Expect(err).NotTo(HaveOccurred())
	started := make(chan struct{})
	server := &dns.Server{PacketConn: conn, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		reply := new(dns.Msg).SetReply(r)
		if q := r.Question[0]; q.Qtype == dns.TypeA {
			reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 0}, A: net.ParseIP(address)}}
		}
		_ = w.WriteMsg(reply) // a client asks again
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.ActivateAndServe() }()
	Eventually(started).Should(BeClosed())
	DeferCleanup(func() {
		Expect(server.Shutdown()).To(Succeed())
		Eventually(ended).Should(Receive(Succeed()))
	})
	return conn.LocalAddr().String()
}
