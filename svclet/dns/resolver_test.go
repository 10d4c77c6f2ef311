package dns

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// resolver is one of the machine's resolvers.
type resolver struct {
	*dns.Server
	asked  atomic.Int32
	silent atomic.Bool
	noTCP  atomic.Bool // answers are too long for UDP, and none comes by TCP
	last   atomic.Pointer[dns.Msg]
}

// newResolver starts a resolver, by UDP and TCP.
func newResolver(t testing.TB, address string) *resolver {
	t.Helper()
	tcp, err := net.Listen("tcp", address)
	must(t, err)
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	must(t, err)
	r := &resolver{Server: &dns.Server{Listener: tcp}}
	r.Handler = dns.HandlerFunc(r.answer)
	var running sync.WaitGroup
	t.Cleanup(running.Wait) // after those below
	for _, server := range []*dns.Server{r.Server, {PacketConn: udp, Handler: r.Handler}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		running.Go(func() { _ = server.ActivateAndServe() })
		<-started
		t.Cleanup(func() { _ = server.Shutdown() })
	}
	return r
}

func (r *resolver) port() string {
	_, port, _ := net.SplitHostPort(r.Listener.Addr().String())
	return port
}

// answer answers by the question's first label.
func (r *resolver) answer(w dns.ResponseWriter, m *dns.Msg) {
	r.asked.Add(1)
	r.last.Store(m.Copy())
	if r.silent.Load() {
		return
	}
	q := m.Question[0]
	reply := new(dns.Msg).SetReply(m)
	reply.RecursionAvailable = true
	header := func(kind uint16) dns.RR_Header {
		return dns.RR_Header{Name: q.Name, Rrtype: kind, Class: dns.ClassINET, Ttl: 20}
	}
	soa := &dns.SOA{Hdr: dns.RR_Header{Name: "example.com.", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 3600}, Ns: "ns.example.com.", Mbox: "x.example.com.", Minttl: 10}
	address := &dns.A{Hdr: header(dns.TypeA), A: net.IPv4(192, 0, 2, 1)}
	label, _, _ := strings.Cut(strings.ToLower(q.Name), ".")
	if code, refuses := map[string]int{"formerr": dns.RcodeFormatError, "notimp": dns.RcodeNotImplemented}[label]; refuses && m.IsEdns0() != nil {
		reply.Rcode, reply.Question = code, nil // as a resolver that has not read the message does
		_ = w.WriteMsg(reply)
		return
	}
	if r.noTCP.Load() {
		label = "udponly"
	}
	switch label {
	case "udponly":
		if w.LocalAddr().Network() == "tcp" {
			_ = w.Close()
			return
		}
		reply.Answer, reply.Truncated = []dns.RR{address}, true
	case "absent":
		reply.Rcode, reply.Ns = dns.RcodeNameError, []dns.RR{soa}
	case "unsure":
		reply.Rcode = dns.RcodeNameError
	case "fails":
		reply.Rcode = dns.RcodeServerFailure
	case "extended":
		reply.SetEdns0(udpSize, false)
		reply.Rcode = dns.RcodeBadCookie
	case "other":
		reply.Question = []dns.Question{{Name: "www.example.com.", Qtype: q.Qtype, Qclass: q.Qclass}}
		reply.Answer = []dns.RR{address}
	case "long":
		for i := range byte(200) {
			reply.Answer = append(reply.Answer, &dns.A{Hdr: header(dns.TypeA), A: net.IPv4(192, 0, 2, i)})
		}
		if w.LocalAddr().Network() == "udp" {
			reply.Truncate(udpSize)
		}
	default:
		if q.Qtype == dns.TypeA {
			reply.Answer = []dns.RR{address}
		} else {
			reply.Ns = []dns.RR{soa}
		}
	}
	_ = w.WriteMsg(reply)
}
