package dns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/dns/records"
	"svc.dev/svc/svclet/services"
)

// ServiceKey is the service at whose cluster IP pods reach the server.
var ServiceKey = services.Key{Namespace: "kube-system", Name: "kube-dns"} //nolint:gochecknoglobals // a constant

const (
	// udpSize is the largest answer in a datagram, in bytes, that passes every network
	// without fragments (DNS flag day 2020).
	udpSize = 1232
	// maxForwards bounds the questions that wait for answers of the machine's resolvers.
	maxForwards = 1000
	// stopTimeout bounds the wait for answers in progress.
	stopTimeout = time.Second
	// listenAttempts bounds the search for a port that is free for UDP and TCP.
	listenAttempts = 10
)

// Options are what a server is made with.
type Options struct {
	// Domain is the cluster's domain, such as "cluster.local".
	Domain   string
	Services *services.Store
	// ResolvConf is the file with the machine's resolvers.
	ResolvConf string
	Clock      clock.Clock
}

// Server is the DNS server of a node.
type Server struct {
	zone     records.Zone
	services *services.Store
	forward  *forwarder
	udp      net.PacketConn
	tcp      net.Listener
}

// Listen returns a server that listens at a free port of the loopback address, for UDP
// and TCP, and answers with Run.
func Listen(ctx context.Context, o Options) (*Server, error) {
	s := &Server{zone: records.Zone{Domain: o.Domain, Services: o.Services, Server: ServiceKey}, services: o.Services}
	s.forward = newForwarder(o.ResolvConf, o.Clock, s.ownAddresses)
	var config net.ListenConfig
	var err error
	for range listenAttempts {
		if s.tcp, err = config.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			break
		}
		if s.udp, err = config.ListenPacket(ctx, "udp", s.tcp.Addr().String()); err == nil {
			return s, nil
		}
		s.tcp.Close()
	}
	return nil, fmt.Errorf("DNS server: %w", err)
}

// Address returns where the server listens.
func (s *Server) Address() netip.AddrPort {
	return netip.MustParseAddrPort(s.tcp.Addr().String())
}

// ownAddresses are those at which clients reach this server: the machine's resolvers may
// name them.
func (s *Server) ownAddresses() []string {
	if service := s.services.Get(ServiceKey).Service; service != nil {
		return service.Spec.ClusterIPs
	}
	return nil
}

// Run answers questions until ctx is done.
func (s *Server) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("dns"))
	var serving sync.WaitGroup
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) { s.serve(ctx, w, r) })
	servers := []*dns.Server{{PacketConn: s.udp, Handler: handler, UDPSize: dns.MaxMsgSize}, {Listener: s.tcp, Handler: handler}}
	for _, server := range servers {
		started := make(chan struct{})
		ended := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		serving.Go(func() {
			defer close(ended)
			if err := server.ActivateAndServe(); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to serve DNS")
			}
		})
		select {
		case <-started:
		case <-ended:
		}
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	for _, server := range servers {
		if err := server.ShutdownContext(stop); err != nil {
			klog.FromContext(ctx).V(2).Info("DNS answers in progress were abandoned", "err", err)
		}
	}
	serving.Wait()
}

// serve answers a message.
func (s *Server) serve(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) {
	reply := s.reply(ctx, r)
	size := dns.MaxMsgSize
	edns := r.IsEdns0()
	if w.LocalAddr().Network() == "udp" {
		size = dns.MinMsgSize
		if edns != nil {
			size = min(max(int(edns.UDPSize()), dns.MinMsgSize), udpSize)
		}
	}
	if edns != nil && reply.IsEdns0() == nil {
		reply.SetEdns0(udpSize, edns.Do())
	}
	if edns != nil && reply.Rcode > 0xF {
		reply.IsEdns0().SetExtendedRcode(uint16(reply.Rcode)) //nolint:gosec // a code of 12 bits
	}
	reply.Compress = true
	reply.Truncate(size)
	if err := w.WriteMsg(reply); err != nil {
		klog.FromContext(ctx).V(4).Info("Failed to write a DNS answer", "client", w.RemoteAddr(), "err", err)
	}
}

// reply returns the answer to a message.
func (s *Server) reply(ctx context.Context, r *dns.Msg) *dns.Msg {
	refuse := func(code int) *dns.Msg { return new(dns.Msg).SetRcode(r, code) }
	if len(r.Question) != 1 {
		return refuse(dns.RcodeFormatError)
	}
	q := r.Question[0]
	switch edns := r.IsEdns0(); {
	case r.Opcode != dns.OpcodeQuery:
		return refuse(dns.RcodeNotImplemented)
	case edns != nil && edns.Version() != 0:
		return refuse(dns.RcodeBadVers)
	case q.Qclass != dns.ClassINET || q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR:
		return refuse(dns.RcodeRefused)
	}
	if !s.services.Synced() {
		return refuse(dns.RcodeServerFailure) // not that there is no such name
	}
	answer, own := s.zone.Answer(q)
	if !own {
		reply, err := s.forward.exchange(ctx, r)
		if err != nil {
			return refuse(dns.RcodeServerFailure)
		}
		return reply
	}
	reply := new(dns.Msg).SetReply(r)
	reply.Authoritative, reply.RecursionAvailable = true, true
	if !answer.Exists {
		reply.Rcode = dns.RcodeNameError
	}
	reply.Answer, reply.Extra, reply.Ns = answer.Records, answer.Extra, answer.Authority
	rand.Shuffle(len(reply.Answer), func(i, j int) { reply.Answer[i], reply.Answer[j] = reply.Answer[j], reply.Answer[i] })
	s.follow(ctx, r, reply)
	return reply
}

// follow adds what the external name of a service has.
func (s *Server) follow(ctx context.Context, r, reply *dns.Msg) {
	if len(reply.Answer) != 1 || r.Question[0].Qtype == dns.TypeCNAME {
		return
	}
	alias, ok := reply.Answer[0].(*dns.CNAME)
	if !ok {
		return
	}
	q := dns.Question{Name: alias.Target, Qtype: r.Question[0].Qtype, Qclass: dns.ClassINET}
	if answer, own := s.zone.Answer(q); own {
		reply.Answer = append(reply.Answer, answer.Records...)
		return
	}
	next := r.Copy()
	next.Question[0] = q
	found, err := s.forward.exchange(ctx, next)
	if err != nil {
		reply.Rcode = dns.RcodeServerFailure
		return
	}
	reply.Answer, reply.Rcode = append(reply.Answer, found.Answer...), found.Rcode
}

// errBusy is returned while too many questions wait.
var errBusy = errors.New("too many questions are being forwarded")
