package records_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/dns/records"
	"svc.dev/svc/svclet/services"
)

// cluster has the services of the specification's examples, and more.
func cluster(t testing.TB) *services.Store {
	t.Helper()
	store := services.New()
	https := []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}, {Protocol: corev1.ProtocolTCP, Port: 80}}
	service := func(namespace, name string, spec corev1.ServiceSpec) any {
		if spec.ClusterIP == "" && len(spec.ClusterIPs) > 0 {
			spec.ClusterIP = spec.ClusterIPs[0]
		}
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
	}
	external := func(name, target string) any {
		return service("names", name, corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: target})
	}
	none := corev1.ServiceSpec{ClusterIP: "None", ClusterIPs: []string{"None"}, Ports: https}
	all := []any{
		service("default", "kubernetes", corev1.ServiceSpec{ClusterIPs: []string{"10.3.0.1"}, Ports: https}),
		service("default", "dual", corev1.ServiceSpec{ClusterIPs: []string{"10.3.0.2", "fd00:3::2"}, Ports: https}),
		service("default", "headless", none), service("default", "empty", none), service("default", "hosts", none),
		service("kube-system", "kube-dns", corev1.ServiceSpec{ClusterIPs: []string{"10.3.0.10"}}),
		service("default", "foo", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "www.example.com"}),
		external("inside", "Kubernetes.default.svc.cluster.local"), external("twice", "inside.names.svc.cluster.local"),
		external("out", "foo.default.svc.cluster.local."), external("absent", "nothing.default.svc.cluster.local"),
		external("loop", "pool.names.svc.cluster.local"), external("pool", "loop.names.svc.cluster.local"),
		external("address", "192.0.2.1"),
	}
	endpoint := func(address, hostname string) discoveryv1.Endpoint {
		e := discoveryv1.Endpoint{Addresses: []string{address}}
		if hostname != "" {
			e.Hostname = ptr.To(hostname)
		}
		return e
	}
	slice := func(of, name string, endpoints ...discoveryv1.Endpoint) any {
		family := discoveryv1.AddressTypeIPv4
		if strings.Contains(endpoints[0].Addresses[0], ":") {
			family = discoveryv1.AddressTypeIPv6
		}
		return &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: of}},
			AddressType: family, Endpoints: endpoints,
			Ports: []discoveryv1.EndpointPort{
				{Name: ptr.To("https"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8443)},
				{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)},
			},
		}
	}
	unready := endpoint("10.3.0.4", "")
	unready.Conditions.Ready = ptr.To(false)
	slices := []any{
		slice("headless", "headless-1", endpoint("10.3.0.100", "my-pet"), endpoint("10.3.0.101", "my-pet-2"), endpoint("10.3.0.102", ""), unready),
		slice("headless", "headless-2", endpoint("fd00:0:0:3::0100", "")),
		slice("hosts", "hosts-1", endpoint("10.3.0.110", "same"), endpoint("10.3.0.111", "same")),
		slice("empty", "empty-1", unready),
		slice("kubernetes", "kubernetes-1", endpoint("192.0.2.7", "")),
	}
	for _, err := range []error{store.Services().Replace(all, ""), store.EndpointSlices().Replace(slices, "")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return store
}

func zone(t testing.TB) *records.Zone {
	return records.New("Cluster.Local", cluster(t), services.Key{Namespace: "kube-system", Name: "kube-dns"})
}

// soa is how show writes the start of authority.
const soa = "; SOA cluster.local."

// show writes an answer: the code if it is not that of a success, the records without
// their times to live, and then the additional and authority sections.
func show(a records.Answer) string {
	var lines []string
	if a.Rcode != dns.RcodeSuccess {
		lines = append(lines, dns.RcodeToString[a.Rcode])
	}
	add := func(prefix string, all []dns.RR) {
		for _, record := range all {
			fields := strings.Fields(record.String())
			lines = append(lines, prefix+strings.Join(slices.Delete(fields, 1, 3), " "))
		}
	}
	add("", a.Records)
	add("+ ", a.Extra)
	for _, record := range a.Authority {
		lines = append(lines, "; "+dns.TypeToString[record.Header().Rrtype]+" "+record.Header().Name)
	}
	if a.Alias != "" {
		lines = append(lines, "> "+a.Alias)
	}
	return strings.Join(lines, "\n")
}

func TestAnswersForServices(t *testing.T) {
	testAnswers(t, []answerCase{
		{"2.3.1 the address of a service", "kubernetes.default.svc.cluster.local. A", "kubernetes.default.svc.cluster.local. A 10.3.0.1"},
		{"2.3.1 in both families", "dual.default.svc.cluster.local. A", "dual.default.svc.cluster.local. A 10.3.0.2"},
		{"2.3.1 in both families", "dual.default.svc.cluster.local. AAAA", "dual.default.svc.cluster.local. AAAA fd00:3::2"},
		{"2.3.1 not in one that it does not have", "kubernetes.default.svc.cluster.local. AAAA", soa},
		{"2.3.2 a named port", "_https._tcp.kubernetes.default.svc.cluster.local. SRV",
			"_https._tcp.kubernetes.default.svc.cluster.local. SRV 10 100 443 kubernetes.default.svc.cluster.local.\n+ kubernetes.default.svc.cluster.local. A 10.3.0.1"},
		{"2.3.2 of another protocol", "_https._udp.kubernetes.default.svc.cluster.local. SRV", "NXDOMAIN\n" + soa},
		{"2.3.2 another name", "_http._tcp.kubernetes.default.svc.cluster.local. SRV", "NXDOMAIN\n" + soa},
		{"2.3.2 an unnamed port has no record", "_._tcp.kubernetes.default.svc.cluster.local. SRV", "NXDOMAIN\n" + soa},
		{"2.3.2 a protocol has names below it", "_tcp.kubernetes.default.svc.cluster.local. SRV", soa},
		{"2.3.3 the name of a cluster IP", "1.0.3.10.in-addr.arpa. PTR", "1.0.3.10.in-addr.arpa. PTR kubernetes.default.svc.cluster.local."},
		{"2.3.3 of IPv6", reverse(t, "fd00:3::2") + " PTR", reverse(t, "fd00:3::2") + " PTR dual.default.svc.cluster.local."},
		{"2.3.3 other types", "1.0.3.10.in-addr.arpa. A", soa},
		{"2.3.3 an endpoint of a service with a cluster IP has no name", "7.2.0.192.in-addr.arpa. PTR", "elsewhere"},
		{"an address of no service is for others to name", "200.0.3.10.in-addr.arpa. PTR", "elsewhere"},
	})
}

func TestAnswersForHeadlessServices(t *testing.T) {
	testAnswers(t, []answerCase{
		{"2.4.1 the ready endpoints of a headless service", "headless.default.svc.cluster.local. A",
			"headless.default.svc.cluster.local. A 10.3.0.100\nheadless.default.svc.cluster.local. A 10.3.0.101\nheadless.default.svc.cluster.local. A 10.3.0.102"},
		{"2.4.1 of IPv6", "headless.default.svc.cluster.local. AAAA", "headless.default.svc.cluster.local. AAAA fd00:0:0:3::100"},
		{"2.4.1 without ready endpoints", "empty.default.svc.cluster.local. A", "NXDOMAIN\n" + soa},
		{"2.4.1 a host name", "my-pet.headless.default.svc.cluster.local. A", "my-pet.headless.default.svc.cluster.local. A 10.3.0.100"},
		{"2.4.1 a host name of several addresses", "same.hosts.default.svc.cluster.local. A",
			"same.hosts.default.svc.cluster.local. A 10.3.0.110\nsame.hosts.default.svc.cluster.local. A 10.3.0.111"},
		{"2.4.1 an endpoint without a host name", "10-3-0-102.headless.default.svc.cluster.local. A", "10-3-0-102.headless.default.svc.cluster.local. A 10.3.0.102"},
		{"2.4.1 one that is not ready", "10-3-0-4.headless.default.svc.cluster.local. A", "NXDOMAIN\n" + soa},
		{"2.4.1 a service with a cluster IP has none", "192-0-2-7.kubernetes.default.svc.cluster.local. A", "NXDOMAIN\n" + soa},
		{"2.4.2 a named port of each endpoint", "_https._tcp.headless.default.svc.cluster.local. SRV",
			"_https._tcp.headless.default.svc.cluster.local. SRV 10 100 8443 my-pet.headless.default.svc.cluster.local.\n" +
				"_https._tcp.headless.default.svc.cluster.local. SRV 10 100 8443 my-pet-2.headless.default.svc.cluster.local.\n" +
				"_https._tcp.headless.default.svc.cluster.local. SRV 10 100 8443 10-3-0-102.headless.default.svc.cluster.local.\n" +
				"_https._tcp.headless.default.svc.cluster.local. SRV 10 100 8443 fd00-0-0-3--0100.headless.default.svc.cluster.local.\n" +
				"+ my-pet.headless.default.svc.cluster.local. A 10.3.0.100\n+ my-pet-2.headless.default.svc.cluster.local. A 10.3.0.101\n" +
				"+ 10-3-0-102.headless.default.svc.cluster.local. A 10.3.0.102\n+ fd00-0-0-3--0100.headless.default.svc.cluster.local. AAAA fd00:0:0:3::100"},
		{"2.4.2 one record of a host name", "_https._tcp.hosts.default.svc.cluster.local. SRV",
			"_https._tcp.hosts.default.svc.cluster.local. SRV 10 100 8443 same.hosts.default.svc.cluster.local.\n" +
				"+ same.hosts.default.svc.cluster.local. A 10.3.0.110\n+ same.hosts.default.svc.cluster.local. A 10.3.0.111"},
		{"2.4.2 without ready endpoints", "_https._tcp.empty.default.svc.cluster.local. SRV", "NXDOMAIN\n" + soa},
		{"2.4.3 the name of an endpoint", "100.0.3.10.in-addr.arpa. PTR", "100.0.3.10.in-addr.arpa. PTR my-pet.headless.default.svc.cluster.local."},
		{"2.4.3 of IPv6, in whichever notation the endpoint has it", reverse(t, "fd00:0:0:3::100") + " PTR",
			reverse(t, "fd00:0:0:3::100") + " PTR fd00-0-0-3--0100.headless.default.svc.cluster.local."},
	})
}

func TestAnswersForExternalNames(t *testing.T) {
	testAnswers(t, []answerCase{
		{"2.5 an external name", "foo.default.svc.cluster.local. A", "foo.default.svc.cluster.local. CNAME www.example.com.\n> www.example.com."},
		{"2.5 itself", "foo.default.svc.cluster.local. CNAME", "foo.default.svc.cluster.local. CNAME www.example.com."},
		{"2.5 has no names below it", "_https._tcp.foo.default.svc.cluster.local. SRV", "NXDOMAIN\n" + soa},
		{"2.5 one that looks like an address", "address.names.svc.cluster.local. A", "address.names.svc.cluster.local. CNAME 192.0.2.1.\n> 192.0.2.1."},
		{"an external name in the cluster", "inside.names.svc.cluster.local. A",
			"inside.names.svc.cluster.local. CNAME Kubernetes.default.svc.cluster.local.\nKubernetes.default.svc.cluster.local. A 10.3.0.1"},
		{"of another external name", "twice.names.svc.cluster.local. A",
			"twice.names.svc.cluster.local. CNAME inside.names.svc.cluster.local.\ninside.names.svc.cluster.local. CNAME Kubernetes.default.svc.cluster.local.\nKubernetes.default.svc.cluster.local. A 10.3.0.1"},
		{"that leads out of the cluster", "out.names.svc.cluster.local. AAAA",
			"out.names.svc.cluster.local. CNAME foo.default.svc.cluster.local.\nfoo.default.svc.cluster.local. CNAME www.example.com.\n> www.example.com."},
		{"without records of the type (RFC 2308, section 2.2)", "inside.names.svc.cluster.local. AAAA",
			"inside.names.svc.cluster.local. CNAME Kubernetes.default.svc.cluster.local.\n" + soa},
		{"of a name that does not exist (RFC 6604, section 3)", "absent.names.svc.cluster.local. A",
			"NXDOMAIN\nabsent.names.svc.cluster.local. CNAME nothing.default.svc.cluster.local.\n" + soa},
		{"that leads back to itself", "loop.names.svc.cluster.local. A", "SERVFAIL"},
	})
}

func TestAnswersForPodsAndTheZone(t *testing.T) {
	testAnswers(t, []answerCase{
		{"2.2 the schema's version", "dns-version.cluster.local. TXT", `dns-version.cluster.local. TXT "1.1.0"`},
		{"2.6 a pod", "10-3-0-9.default.pod.cluster.local. A", "10-3-0-9.default.pod.cluster.local. A 10.3.0.9"},
		{"2.6 of IPv6", "fd00--9.default.pod.cluster.local. AAAA", "fd00--9.default.pod.cluster.local. AAAA fd00::9"},
		{"2.6 no address", "web.default.pod.cluster.local. A", "NXDOMAIN\n" + soa},
		{"the zone", "cluster.local. NS", "cluster.local. NS ns.dns.cluster.local."},
		{"its name server", "ns.dns.cluster.local. A", "ns.dns.cluster.local. A 10.3.0.10"},
		{"its start of authority", "cluster.local. SOA", "cluster.local. SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5"},
		{"a name that only has names below it (RFC 8020)", "default.svc.cluster.local. A", soa},
		{"a namespace without services has none", "empty.svc.cluster.local. A", "NXDOMAIN\n" + soa},
		{"a service that does not exist", "web.default.svc.cluster.local. A", "NXDOMAIN\n" + soa},
		{"too many labels", "a.b.c.kubernetes.default.svc.cluster.local. A", "NXDOMAIN\n" + soa},
		{"a name is answered as it was asked for", "KUBERNETES.Default.svc.CLUSTER.local. A", "KUBERNETES.Default.svc.CLUSTER.local. A 10.3.0.1"},
		{"any type (RFC 8482)", "kubernetes.default.svc.cluster.local. ANY", `kubernetes.default.svc.cluster.local. HINFO "RFC8482" ""`},
		{"any type of a name without records", "default.svc.cluster.local. ANY", soa},
		{"any type of a name that does not exist", "web.default.svc.cluster.local. ANY", "NXDOMAIN\n" + soa},
		{"another domain", "www.example.com. A", "elsewhere"},
		{"a domain that only ends alike", "kubernetes.default.svc.mycluster.local. A", "elsewhere"},
		{"the root", ". NS", "elsewhere"},
	})
}

// A number that is not a port would wrap in a record.
func TestEndpointsAreAnsweredAsTheAPIAcceptsThemWithoutWhatIsNotAPort(t *testing.T) {
	store := cluster(t)
	tcp := corev1.ProtocolTCP
	odd := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "odd", Labels: map[string]string{discoveryv1.LabelServiceName: "empty", corev1.IsHeadlessService: ""}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Protocol: &tcp, Port: ptr.To[int32](70000)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"::ffff:10.3.0.121"}, Hostname: ptr.To("mapped")}, {Addresses: []string{"010.3.0.120"}, Hostname: ptr.To("zeros")}, {Addresses: []string{"fd00::1"}}},
	}
	if err := store.EndpointSlices().Add(odd); err != nil {
		t.Fatal(err)
	}
	testAnswersOf(t, records.New("cluster.local", store, services.Key{}), []answerCase{
		{"addresses in any notation", "empty.default.svc.cluster.local. A", "empty.default.svc.cluster.local. A 10.3.0.121\nempty.default.svc.cluster.local. A 10.3.0.120"},
		{"only those of the slice's IP family", "empty.default.svc.cluster.local. AAAA", soa},
		{"the name of an address", "121.0.3.10.in-addr.arpa. PTR", "121.0.3.10.in-addr.arpa. PTR mapped.empty.default.svc.cluster.local."},
		{"the name of one with zeros", "120.0.3.10.in-addr.arpa. PTR", "120.0.3.10.in-addr.arpa. PTR zeros.empty.default.svc.cluster.local."},
		{"no record of what is not a port", "_https._tcp.empty.default.svc.cluster.local. SRV", soa},
	})
}

// answerCase is a question and its answer. A rule that begins with a number is of that
// section of the specification of Kubernetes' DNS-based service discovery, with its examples.
// The others are those of the RFCs on names without records and aliases.
type answerCase struct{ rule, question, want string }

func testAnswers(t *testing.T, cases []answerCase) {
	t.Helper()
	testAnswersOf(t, zone(t), cases)
}

func testAnswersOf(t *testing.T, z *records.Zone, cases []answerCase) {
	t.Helper()
	for _, test := range cases {
		name, kind, _ := strings.Cut(test.question, " ")
		answer, own := z.Answer(dns.Question{Name: name, Qtype: dns.StringToType[kind], Qclass: dns.ClassINET})
		got := show(answer)
		if !own {
			got = "elsewhere"
		}
		if got != test.want {
			t.Errorf("%s: %s:\n%s\nwant:\n%s", test.rule, test.question, got, test.want)
		}
	}
}

func reverse(t *testing.T, address string) string {
	t.Helper()
	name, err := dns.ReverseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// Each answer to any question can be sent, and is about that question.
func FuzzAnswer(f *testing.F) {
	z := zone(f)
	for _, name := range []string{
		".", "cluster.local.", "_https._tcp.headless.default.svc.cluster.local.", "loop.names.svc.cluster.local.", "1.0.3.10.in-addr.arpa.",
		"1.ip6.arpa.", `\.\000.svc.cluster.local.`, "a.b.c.d.svc.cluster.local.", "10-3-0-9.x.pod.cluster.local.",
	} {
		f.Add(name, dns.TypeA)
		f.Add(name, dns.TypeANY)
	}
	f.Fuzz(func(t *testing.T, name string, kind uint16) {
		request := new(dns.Msg).SetQuestion(name, kind)
		packed, err := request.Pack()
		if err != nil || request.Unpack(packed) != nil {
			t.Skip() // no name
		}
		answer, own := z.Answer(request.Question[0])
		if !own {
			return
		}
		reply := new(dns.Msg).SetRcode(request, answer.Rcode)
		reply.Answer, reply.Extra, reply.Ns = answer.Records, answer.Extra, answer.Authority
		if _, err := reply.Pack(); err != nil {
			t.Fatalf("%q: %v\n%s", name, err, reply)
		}
		if len(reply.Answer) > 0 && reply.Answer[0].Header().Name != request.Question[0].Name {
			t.Errorf("%q: %s", name, reply.Answer[0])
		}
		if answer.Rcode == dns.RcodeNameError && len(reply.Ns) != 1 {
			t.Errorf("%q: no start of authority", name)
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	store := services.New()
	var all, endpoints []any
	for i := range 10000 {
		name := fmt.Sprintf("web-%d", i)
		ip := fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&0xff, i&0xff)
		all = append(all, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("shop-%d", i%100), Name: name},
			Spec: corev1.ServiceSpec{
				ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			},
		})
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: fmt.Sprintf("shop-%d", i%100), Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
		for j := range 5 {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 200+j, i>>8, i&0xff)}})
		}
		endpoints = append(endpoints, slice)
	}
	for _, err := range []error{store.Services().Replace(all, ""), store.EndpointSlices().Replace(endpoints, "")} {
		if err != nil {
			b.Fatal(err)
		}
	}
	z := records.New("cluster.local", store, services.Key{})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("web-%d.shop-%d.svc.cluster.local.", i%10000, i%100)
		answer, _ := z.Answer(dns.Question{Name: name, Qtype: dns.TypeA, Qclass: dns.ClassINET})
		if len(answer.Records) != 1 {
			b.Fatal(name)
		}
	}
}
