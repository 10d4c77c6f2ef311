package dns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/dns/records"
	"svc.dev/svc/svclet/services"
)

// fixture is a server that runs, with one resolver of the machine.
type fixture struct {
	*Server
	t        testing.TB
	store    *services.Store
	clock    *clocktesting.FakeClock
	resolver *resolver
}

// start starts a server with services.
func start(t testing.TB, all ...any) *fixture {
	t.Helper()
	f := &fixture{t: t, store: services.New(), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), resolver: newResolver(t, "127.0.0.1:0")}
	dir := t.TempDir()
	file := filepath.Join(dir, "resolv.conf")
	must(t, os.WriteFile(file, []byte("nameserver 127.0.0.1\n"), 0o600))
	var err error
	f.Server, err = Listen(t.Context(), Options{
		Domain: "cluster.local", Services: f.store, ResolvConf: file, PortFile: filepath.Join(dir, "svclet", "port"), Clock: f.clock,
	})
	must(t, err)
	f.forward.port = f.resolver.port()
	if all != nil {
		f.list(all...)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// list makes the copy of services complete.
func (f *fixture) list(all ...any) {
	f.t.Helper()
	must(f.t, f.store.Services().Replace(all, ""))
	must(f.t, f.store.EndpointSlices().Replace(nil, ""))
}

// resolvers sets the machine's.
func (f *fixture) resolvers(addresses ...string) {
	f.t.Helper()
	var content string
	for _, address := range addresses {
		content += "nameserver " + address + "\n"
	}
	must(f.t, os.WriteFile(f.forward.file, []byte(content), 0o600))
}

func query(name string, kind uint16) *dns.Msg { return new(dns.Msg).SetQuestion(name, kind) }

// by asks the server by udp or tcp.
func (f *fixture) by(network string, m *dns.Msg) *dns.Msg {
	f.t.Helper()
	client := dns.Client{Net: network, Timeout: 10 * time.Second, UDPSize: dns.MinMsgSize}
	answer, _, err := client.Exchange(m, f.Addresses()[0].String())
	must(f.t, err)
	answer.Compress = true // as it came, for its length
	return answer
}

func (f *fixture) ask(name string, kind uint16) *dns.Msg {
	f.t.Helper()
	return f.by("udp", query(name, kind))
}

func service(namespace, name string, ips ...string) *corev1.Service {
	spec := corev1.ServiceSpec{ClusterIPs: ips}
	if len(ips) > 0 {
		spec.ClusterIP = ips[0]
	}
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
}

func externalName(name, target string) *corev1.Service {
	s := service("shop", name)
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, target
	return s
}

// summary is the code of an answer and its records, without types and classes.
func summary(m *dns.Msg) string {
	fields := []string{dns.RcodeToString[m.Rcode]}
	for _, record := range m.Answer {
		words := strings.Fields(record.String())
		fields = append(fields, words[len(words)-1])
	}
	return strings.Join(fields, " ")
}

func TestNamesOfTheClusterAreAnsweredByUDPAndTCP(t *testing.T) {
	f := start(t, service("shop", "web", "10.96.0.7"))
	for _, network := range []string{"udp", "tcp"} {
		m := f.by(network, query("web.shop.svc.cluster.local.", dns.TypeA))
		if summary(m) != "NOERROR 10.96.0.7" || !m.Authoritative || !m.RecursionAvailable || m.Answer[0].Header().Ttl != records.TTL {
			t.Errorf("%s: %s", network, m)
		}
		m = f.by(network, query("db.shop.svc.cluster.local.", dns.TypeA))
		if summary(m) != "NXDOMAIN" || len(m.Ns) != 1 {
			t.Errorf("%s: %s", network, m)
		}
	}
	if n := f.resolver.asked.Load(); n != 0 {
		t.Errorf("the machine's resolver was asked %d times", n)
	}
}

// Before the copy of services is complete, a name may exist that it does not have.
func TestOnlyNamesOfTheClusterWaitForTheCopyOfServices(t *testing.T) {
	f := start(t)
	if got := summary(f.ask("www.example.com.", dns.TypeA)); got != "NOERROR 192.0.2.1" {
		t.Error(got)
	}
	for _, name := range []string{"web.shop.svc.cluster.local.", "7.0.96.10.in-addr.arpa."} {
		if got := summary(f.ask(name, dns.TypePTR)); got != "SERVFAIL" {
			t.Errorf("%s: %s", name, got)
		}
	}
	f.list(service("shop", "web", "10.96.0.7"))
	if got := summary(f.ask("7.0.96.10.in-addr.arpa.", dns.TypePTR)); got != "NOERROR web.shop.svc.cluster.local." {
		t.Error(got)
	}
}

func TestAnswersThatDoNotFitAreTruncated(t *testing.T) {
	var ips []string
	for i := range 200 {
		ips = append(ips, fmt.Sprintf("10.96.1.%d", i))
	}
	f := start(t, service("shop", "wide", ips...))
	plain := query("wide.shop.svc.cluster.local.", dns.TypeA)
	if m := f.by("udp", plain); !m.Truncated || m.Len() > dns.MinMsgSize {
		t.Errorf("%d bytes by UDP, truncated %t", m.Len(), m.Truncated)
	}
	large := plain.Copy().SetEdns0(dns.MaxMsgSize, false)
	if m := f.by("udp", large); !m.Truncated || m.Len() > udpSize || m.Len() < dns.MinMsgSize || m.IsEdns0() == nil {
		t.Errorf("%d bytes by UDP with EDNS, truncated %t", m.Len(), m.Truncated)
	}
	if m := f.by("tcp", plain); m.Truncated || len(m.Answer) != len(ips) || m.IsEdns0() != nil {
		t.Errorf("%d addresses by TCP, truncated %t", len(m.Answer), m.Truncated)
	}
}

func TestAnExternalNameHasWhatTheMachinesResolversSay(t *testing.T) {
	f := start(t, externalName("away", "www.example.com"), externalName("gone", "absent.example.com"), externalName("broken", "fails.example.com"))
	for name, want := range map[string]string{
		"away": "NOERROR www.example.com. 192.0.2.1", "gone": "NXDOMAIN absent.example.com.", "broken": "SERVFAIL",
	} {
		if got := summary(f.ask(name+".shop.svc.cluster.local.", dns.TypeA)); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if m := f.ask("gone.shop.svc.cluster.local.", dns.TypeA); len(m.Ns) != 1 {
		t.Errorf("no start of authority: %s", m)
	}
}

func TestUnusualMessages(t *testing.T) {
	f := start(t, service("shop", "web", "10.96.0.7"))
	question := func(change func(*dns.Msg)) *dns.Msg {
		m := query("web.shop.svc.cluster.local.", dns.TypeA)
		change(m)
		return m
	}
	for _, test := range []struct {
		rule string
		m    *dns.Msg
		want string
	}{
		{"two questions", question(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), "FORMERR"},
		{"no question", question(func(m *dns.Msg) { m.Question = nil }), "FORMERR"},
		{"another operation", question(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), "NOTIMP"},
		{"a notification", question(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), "NOTIMP"},
		{"another class", question(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), "REFUSED"},
		{"a transfer of the zone", question(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }), "REFUSED"},
		{"another version of EDNS", question(func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }), "BADVERS"},
	} {
		m := f.by("udp", test.m)
		if got := dns.RcodeToString[m.Rcode]; got != test.want && (test.want != "BADVERS" || m.Rcode != dns.RcodeBadVers) {
			t.Errorf("%s: %s", test.rule, got)
		}
	}
	conn, err := net.Dial("udp", f.Addresses()[0].String())
	must(t, err)
	defer conn.Close()
	for _, packet := range []string{"", "x", strings.Repeat("\xff", 600), "\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"} {
		if _, err := conn.Write([]byte(packet)); err != nil {
			t.Fatal(err)
		}
	}
	if got := summary(f.ask("web.shop.svc.cluster.local.", dns.TypeA)); got != "NOERROR 10.96.0.7" {
		t.Errorf("after malformed packets: %s", got)
	}
}

func TestAnswersOfResolversAreCachedForAsLongAsTheySay(t *testing.T) {
	f := start(t)
	for _, test := range []struct {
		name, want string
		kind       uint16
		age        time.Duration // of an answer from the cache
		again      time.Duration // after which the resolver is asked again
	}{
		{"www", "NOERROR 192.0.2.1", dns.TypeA, 15 * time.Second, 20 * time.Second},
		{"www", "NOERROR", dns.TypeAAAA, 9 * time.Second, 10 * time.Second},
		{"absent", "NXDOMAIN", dns.TypeA, 9 * time.Second, 10 * time.Second},
	} {
		name := test.name + ".example.com."
		before := f.resolver.asked.Load()
		first := f.ask(name, test.kind)
		f.clock.Step(test.age)
		m := f.ask(strings.ToUpper(name), test.kind)
		if summary(first) != test.want || summary(m) != test.want || f.resolver.asked.Load() != before+1 {
			t.Errorf("%s: %s, then %s; the resolver was asked %d times", name, summary(first), summary(m), f.resolver.asked.Load()-before)
		}
		records, old := slices.Concat(m.Answer, m.Ns), slices.Concat(first.Answer, first.Ns)
		if got, want := records[0].Header().Ttl, old[0].Header().Ttl-uint32(test.age/time.Second); got != want {
			t.Errorf("%s: a record of the cache lives %d s, want %d", name, got, want)
		}
		if m.Question[0].Name != strings.ToUpper(name) {
			t.Errorf("%s: the answer is to %s", name, m.Question[0].Name)
		}
		f.clock.Step(test.again - test.age + time.Second)
		f.ask(name, test.kind)
		if got := f.resolver.asked.Load(); got != before+2 {
			t.Errorf("%s: the resolver was asked %d times", name, got-before)
		}
	}
}

func TestAnswersThatMustNotBeCached(t *testing.T) {
	f := start(t)
	for _, name := range []string{"unsure.example.com.", "fails.example.com."} {
		before := f.resolver.asked.Load()
		f.ask(name, dns.TypeA)
		f.ask(name, dns.TypeA)
		if got := f.resolver.asked.Load() - before; got != 2 {
			t.Errorf("%s: the resolver was asked %d times", name, got)
		}
	}
}

func TestLargeAnswersAreNotCached(t *testing.T) {
	f := start(t)
	before := f.resolver.asked.Load()
	f.by("tcp", query("long.example.com.", dns.TypeA))
	once := f.resolver.asked.Load() - before
	f.by("tcp", query("long.example.com.", dns.TypeA))
	if got := f.resolver.asked.Load() - before; got != 2*once {
		t.Errorf("the resolver was asked %d times, %d for one answer", got, once)
	}
}

func TestTooManyQuestionsAtOnceAreNotAnswered(t *testing.T) {
	f := start(t)
	for range maxAnswers {
		f.answering <- struct{}{}
	}
	client := dns.Client{Net: "tcp", Timeout: 10 * time.Second}
	if answer, _, err := client.Exchange(query("www.example.com.", dns.TypeA), f.Addresses()[0].String()); !errors.Is(err, io.EOF) {
		t.Errorf("answered %v, %v", answer, err)
	}
	<-f.answering
	if m := f.by("tcp", query("www.example.com.", dns.TypeA)); summary(m) != "NOERROR 192.0.2.1" {
		t.Errorf("with room for one: %s", summary(m))
	}
}

func TestLongAnswersOfResolversComeByTCP(t *testing.T) {
	f := start(t)
	if m := f.by("tcp", query("long.example.com.", dns.TypeA)); len(m.Answer) != 200 || m.Truncated {
		t.Errorf("%d addresses", len(m.Answer))
	}
	if m := f.ask("long.example.com.", dns.TypeA); !m.Truncated || m.Len() > dns.MinMsgSize {
		t.Errorf("%d bytes by UDP, truncated %t", m.Len(), m.Truncated)
	}
}

func TestAResolverWithoutTCPGivesTheAnswersThatItHas(t *testing.T) {
	f := start(t, externalName("away", "udponly.example.com"))
	for name, want := range map[string]string{"udponly.example.com.": "NOERROR 192.0.2.1", "away.shop.svc.cluster.local.": "NOERROR udponly.example.com. 192.0.2.1"} {
		if m := f.ask(name, dns.TypeA); summary(m) != want || !m.Truncated {
			t.Errorf("%s: %s, truncated %t", name, summary(m), m.Truncated)
		}
	}
	f.forward.mu.Lock()
	defer f.forward.mu.Unlock()
	if len(f.forward.silent) > 0 {
		t.Errorf("resolvers that answer are asked last: %v", f.forward.silent)
	}
}

func TestAResolverWithoutEDNSIsAskedAgainWithout(t *testing.T) {
	f := start(t)
	for _, name := range []string{"formerr.example.com.", "notimp.example.com."} {
		before := f.resolver.asked.Load()
		if got := summary(f.ask(name, dns.TypeA)); got != "NOERROR 192.0.2.1" || f.resolver.last.Load().IsEdns0() != nil || f.resolver.asked.Load() != before+2 {
			t.Errorf("%s: %s, the resolver was asked %d times", name, got, f.resolver.asked.Load()-before)
		}
	}
}

func TestAnExtendedCodeNeedsEDNS(t *testing.T) {
	f := start(t)
	if m := f.ask("extended.example.com.", dns.TypeA); m.Rcode != dns.RcodeServerFailure || m.IsEdns0() != nil {
		t.Errorf("without EDNS: %s", m)
	}
	if m := f.by("udp", query("extended.example.com.", dns.TypeA).SetEdns0(1232, false)); m.Rcode != dns.RcodeBadCookie {
		t.Errorf("with EDNS: %s", m)
	}
}

// An answer to another question, as an attacker may send it, is none.
func TestAnswersToOtherQuestionsAreIgnored(t *testing.T) {
	f := start(t)
	if got := summary(f.ask("other.example.com.", dns.TypeA)); got != "SERVFAIL" {
		t.Error(got)
	}
}

func TestTheOptionsOfAClientStayWithTheServer(t *testing.T) {
	f := start(t)
	m := query("www.example.com.", dns.TypeA).SetEdns0(4096, true)
	m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: dns.EDNS0LOCALSTART, Data: []byte("secret")})
	answer := f.by("udp", m)
	asked := f.resolver.last.Load().IsEdns0()
	if asked == nil || len(asked.Option) > 0 || !asked.Do() || asked.UDPSize() != udpSize {
		t.Errorf("the resolver was asked with %v", asked)
	}
	if edns := answer.IsEdns0(); edns == nil || len(edns.Option) > 0 || edns.UDPSize() != udpSize {
		t.Errorf("answered with %v", edns)
	}
}

func TestTheNextResolverIsAskedWhenOneDoesNotAnswer(t *testing.T) {
	f := start(t)
	f.forward.timeout = 4 * time.Second // half of it for each
	f.resolvers("127.0.0.1", "127.0.0.2")
	second := newResolver(t, net.JoinHostPort("127.0.0.2", f.resolver.port()))
	f.resolver.silent.Store(true)
	if got := summary(f.ask("www.example.com.", dns.TypeA)); got != "NOERROR 192.0.2.1" || second.asked.Load() != 1 {
		t.Errorf("%s, the second was asked %d times", got, second.asked.Load())
	}
	// It is not asked first while it is known not to answer.
	before := f.resolver.asked.Load()
	f.ask("two.example.com.", dns.TypeA)
	if got := f.resolver.asked.Load(); got != before || second.asked.Load() != 2 {
		t.Errorf("the silent one was asked %d times", got-before)
	}
	f.clock.Step(avoidPeriod)
	f.resolver.silent.Store(false)
	f.ask("three.example.com.", dns.TypeA)
	if got := f.resolver.asked.Load(); got != before+1 {
		t.Errorf("the first was asked %d times", got-before)
	}
}

func TestTheNextResolverIsAskedWhenOneHasOnlyAPartOfTheAnswer(t *testing.T) {
	f := start(t)
	f.resolvers("127.0.0.1", "127.0.0.2")
	second := newResolver(t, net.JoinHostPort("127.0.0.2", f.resolver.port()))
	f.resolver.noTCP.Store(true)
	if m := f.by("tcp", query("long.example.com.", dns.TypeA)); m.Truncated || len(m.Answer) != 200 {
		t.Errorf("%d addresses, truncated %t", len(m.Answer), m.Truncated)
	}
	second.noTCP.Store(true)
	if m := f.by("tcp", query("longer.example.com.", dns.TypeA)); !m.Truncated || summary(m) != "NOERROR 192.0.2.1" {
		t.Errorf("none has all: %s", m)
	}
}

// A client waits for 5 seconds.
func TestTheTimeOfAllResolversIsBounded(t *testing.T) {
	f := start(t)
	f.forward.timeout = 300 * time.Millisecond
	f.resolvers("127.0.0.1", "127.0.0.2", "127.0.0.3")
	f.resolver.silent.Store(true)
	for _, address := range []string{"127.0.0.2", "127.0.0.3"} {
		newResolver(t, net.JoinHostPort(address, f.resolver.port())).silent.Store(true)
	}
	done, cancel := context.WithTimeout(t.Context(), 10*f.forward.timeout)
	defer cancel()
	client := dns.Client{Timeout: 10 * time.Second}
	m, _, err := client.ExchangeContext(done, query("www.example.com.", dns.TypeA), f.Addresses()[0].String())
	if err != nil || summary(m) != "SERVFAIL" {
		t.Errorf("%v, %v", m, err)
	}
}

func TestThisServerIsNotOneOfItsResolvers(t *testing.T) {
	f := start(t, service("kube-system", "kube-dns", "127.0.0.1"))
	if got := summary(f.ask("www.example.com.", dns.TypeA)); got != "SERVFAIL" || f.resolver.asked.Load() != 0 {
		t.Errorf("%s, it was asked %d times", got, f.resolver.asked.Load())
	}
}

func TestTooManyForwardedQuestionsAreRefusedAtOnce(t *testing.T) {
	f := start(t)
	for range maxForwards {
		f.forward.waiting <- struct{}{}
	}
	if got := summary(f.ask("www.example.com.", dns.TypeA)); got != "SERVFAIL" || f.resolver.asked.Load() != 0 {
		t.Error(got)
	}
}

func TestThePortStaysTheSame(t *testing.T) {
	file := filepath.Join(t.TempDir(), "svclet", "port")
	open := func() *Server {
		s, err := Listen(t.Context(), Options{Domain: "cluster.local", Services: services.New(), PortFile: file})
		must(t, err)
		return s
	}
	first := open()
	second := open() // its port is taken
	defer second.Close()
	if first.Addresses()[0] == second.Addresses()[0] {
		t.Fatal(first.Addresses()[0])
	}
	must(t, first.Close())
	must(t, second.Close())
	third := open()
	if third.Addresses()[0] != second.Addresses()[0] {
		t.Errorf("%s, then %s", second.Addresses()[0], third.Addresses()[0])
	}
	must(t, third.Close())
	must(t, os.WriteFile(file, []byte("no port"), 0o600))
	fourth := open()
	must(t, fourth.Close())
}

func TestAnAddressWhosePortFailsIsOpenedAgain(t *testing.T) {
	for _, fails := range []func(socket) error{func(s socket) error { return s.udp.Close() }, func(s socket) error { return s.tcp.Close() }} {
		f := start(t, service("shop", "web", "10.96.0.7"))
		must(t, fails(f.sockets[0]))
		await(t, "a failure", func() bool { return f.Problem() != nil && f.clock.HasWaiters() })
		taken, err := net.Listen("tcp", f.Addresses()[0].String())
		must(t, err)
		f.clock.Step(reopenDelay)
		await(t, "another attempt", func() bool {
			return errors.Is(f.Problem(), syscall.EADDRINUSE) && f.clock.HasWaiters()
		})
		must(t, taken.Close())
		f.clock.Step(reopenDelay)
		await(t, "answers", func() bool { return f.Problem() == nil })
		for _, network := range []string{"udp", "tcp"} {
			if got := summary(f.by(network, query("web.shop.svc.cluster.local.", dns.TypeA))); got != "NOERROR 10.96.0.7" {
				t.Errorf("%s: %s", network, got)
			}
		}
	}
}

// await waits for a condition.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return is(), nil }); err != nil {
		t.Fatalf("waited for %s: %v", what, err)
	}
}

// BenchmarkServer asks for one of 10,000 services by UDP, and reports the 50th and the
// 99th percentile besides the mean.
func BenchmarkServer(b *testing.B) {
	var all []any
	for i := range 10000 {
		all = append(all, service(fmt.Sprintf("shop-%d", i%100), fmt.Sprintf("web-%d", i), fmt.Sprintf("10.96.%d.%d", i>>8, i&0xff)))
	}
	f := start(b, all...)
	conn, err := dns.Dial("udp", f.Addresses()[0].String())
	must(b, err)
	defer conn.Close()
	var client dns.Client
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		m := query(fmt.Sprintf("web-%d.shop-%d.svc.cluster.local.", i%10000, i%100), dns.TypeA)
		answer, round, err := client.ExchangeWithConn(m, conn)
		if err != nil || len(answer.Answer) != 1 {
			b.Fatal(answer, err)
		}
		took = append(took, round)
	}
	slices.Sort(took)
	for _, percentile := range []int{50, 99} {
		b.ReportMetric(float64(took[len(took)*percentile/100].Microseconds()), fmt.Sprintf("p%d-µs", percentile))
	}
}
