package dns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/dns/records"
	"svc.dev/svc/svclet/services"
)

const (
	// ServicePort is the port of the service at whose cluster IP pods reach the server.
	ServicePort = 53
	// udpSize is the largest answer in a datagram, in bytes, that passes every network
	// without fragments (DNS flag day 2020).
	udpSize = 1232
	// stopTimeout bounds the wait for answers in progress.
	stopTimeout = time.Second
	// reopenDelay is the time until a socket that has failed is opened again.
	reopenDelay = time.Second
)

// ServiceKey returns the name of the service at whose cluster IP pods reach the server.
func ServiceKey() services.Key {
	return services.Key{Namespace: "kube-system", Name: "kube-dns"}
}

// Options are what a server is made with.
type Options struct {
	// Domain is the cluster's domain, such as "cluster.local".
	Domain   string
	Services *services.Store
	// ResolvConf is the file with the machine's resolvers. It is read for each question
	// that is forwarded, because it changes with the machine's network.
	ResolvConf string
	// Link is the interface that the server makes for its IPv6 address as soon as its
	// service has one; empty for a server without IPv6.
	Link string
	// PortFile keeps the number of the port, so that a restarted agent has the same: the
	// kernel's flows of UDP and the rules of the service proxy lead to it.
	PortFile string
	Clock    clock.WithTicker
}

// Server is the DNS server of a node.
type Server struct {
	zone     *records.Zone
	services *services.Store
	forward  *forwarder
	clock    clock.Clock
	sockets  []socket
	link     *link // nil without IPv6
	// answering has room for the answers in progress, and building for those of the zone that
	// are being made.
	answering, building chan struct{}
	// failures are why the sockets do not answer, by their index; nil while they do.
	failures []atomic.Pointer[error]
}

// Listen returns a server that listens at the loopback address and, where the machine has
// IPv6 and the options name an interface, at [Address6], for UDP and TCP. It answers as
// soon as Run is called; without that, Close closes its port.
func Listen(ctx context.Context, o Options) (*Server, error) {
	s := &Server{
		zone: records.New(o.Domain, o.Services, ServiceKey()), services: o.Services, clock: o.Clock,
		answering: make(chan struct{}, maxAnswers), building: make(chan struct{}, maxBuilding),
	}
	s.forward = newForwarder(o.ResolvConf, o.Clock, s.ownAddresses)
	var err error
	s.sockets, err = listen(ctx, o.PortFile, o.Link != "")
	s.failures = make([]atomic.Pointer[error], len(s.sockets))
	if err == nil && s.Serves(Address6()) {
		s.link = newLink(o)
	}
	return s, err
}

// Close closes the port of a server that does not run.
func (s *Server) Close() error {
	var errs []error
	for _, at := range s.sockets {
		errs = append(errs, at.close())
	}
	return errors.Join(errs...)
}

// Addresses returns where the server listens: at one address of each IP family that it
// serves, IPv4 first.
func (s *Server) Addresses() []netip.AddrPort {
	var all []netip.AddrPort
	for _, at := range s.sockets {
		all = append(all, at.address())
	}
	return all
}

// Serves reports whether the server answers in the IP family of an address.
func (s *Server) Serves(family netip.Addr) bool {
	return slices.ContainsFunc(s.sockets, func(at socket) bool { return at.address().Addr().Is6() == family.Is6() })
}

// ownAddresses are those at which clients reach this server: the machine's resolvers may
// name them.
func (s *Server) ownAddresses() []string {
	if service := s.services.Get(ServiceKey()).Service; service != nil {
		return service.Spec.ClusterIPs
	}
	return nil
}

// Problem returns why the server does not answer at one of its addresses, or nil.
func (s *Server) Problem() error {
	for i := range s.failures {
		if err := s.failures[i].Load(); err != nil {
			return *err
		}
	}
	return nil
}

// Run answers questions until ctx is done.
func (s *Server) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("dns"))
	var serving sync.WaitGroup
	defer serving.Wait() // also for the answers in progress
	if s.link != nil {
		serving.Go(func() { s.link.run(ctx) })
	}
	for i, at := range s.sockets {
		serving.Go(func() { s.keep(ctx, at, &s.failures[i]) })
	}
	<-ctx.Done()
}

// keep answers questions at an address until ctx is done. It opens the address again when one
// of its ports has failed.
func (s *Server) keep(ctx context.Context, at socket, failure *atomic.Pointer[error]) {
	for {
		err := s.answer(ctx, at)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(err, "DNS server has failed, will open its address again", "address", at.address())
		for err != nil {
			problem := fmt.Errorf("serve DNS: %w", err)
			failure.Store(&problem)
			select {
			case <-ctx.Done():
				return
			case <-s.clock.After(reopenDelay):
			}
			var opened socket
			if opened, err = at.reopen(ctx); err == nil {
				at = opened
			}
		}
		failure.Store(nil)
		klog.FromContext(ctx).Info("DNS server answers again", "address", at.address())
	}
}

// answer answers questions by UDP and TCP until ctx is done or, with an error, one of them
// fails. Then the ports of both are closed.
func (s *Server) answer(ctx context.Context, at socket) error {
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) { s.serve(ctx, w, r) })
	servers := []*dns.Server{{PacketConn: at.udp, Handler: handler, UDPSize: dns.MaxMsgSize}, {Listener: at.tcp, Handler: handler}}
	failed := make(chan error, len(servers))
	var serving sync.WaitGroup
	defer serving.Wait()
	for _, server := range servers {
		started, ended := make(chan struct{}), make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		serving.Go(func() {
			defer close(ended)
			if err := server.ActivateAndServe(); err != nil {
				failed <- err
			}
		})
		select { // a server that has not started cannot be stopped
		case <-started:
		case <-ended:
		}
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	for _, server := range servers {
		if err := server.ShutdownContext(stop); err != nil {
			klog.FromContext(ctx).V(2).Info("Failed to stop the DNS server in time", "err", err)
		}
	}
	return err
}

const (
	// maxAnswers bounds the answers in progress; most of them wait for the machine's resolvers.
	maxAnswers = 4 * maxForwards
	// maxBuilding bounds the answers of the zone that are made at the same time: a service may
	// have a hundred thousand endpoints.
	maxBuilding = 8
	// maxRecords is more records than a message has room for: each takes 16 bytes at least.
	maxRecords = dns.MaxMsgSize/16 + 1
)

// serve answers a message. If too many are being answered it does not: clients ask again.
func (s *Server) serve(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) {
	select {
	case s.answering <- struct{}{}:
		defer func() { <-s.answering }()
	default:
		_ = w.Close() // of TCP; by UDP it has no effect
		return
	}
	reply := s.reply(ctx, r)
	size := dns.MaxMsgSize
	edns := r.IsEdns0()
	if w.LocalAddr().Network() == "udp" {
		size = dns.MinMsgSize
		if edns != nil {
			size = min(max(int(edns.UDPSize()), dns.MinMsgSize), udpSize)
		}
	}
	switch {
	case edns != nil:
		reply.SetEdns0(udpSize, edns.Do())
	case reply.Rcode > 0xF:
		reply.Rcode = dns.RcodeServerFailure // its other bits are in the OPT record
	}
	reply.Compress, reply.RecursionAvailable = true, true
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
	case !s.services.Synced() && (s.zone.Contains(q.Name) || records.IsReverse(q.Name)):
		return refuse(dns.RcodeServerFailure) // there may be such a name
	}
	answer, own := s.ofZone(q)
	if !own {
		reply, err := s.forward.exchange(ctx, r)
		if err != nil {
			return refuse(dns.RcodeServerFailure)
		}
		return reply
	}
	reply := new(dns.Msg).SetRcode(r, answer.Rcode)
	reply.Authoritative = true
	reply.Answer, reply.Extra, reply.Ns = answer.Records, answer.Extra, answer.Authority
	if answer.Alias != "" {
		return s.follow(ctx, r, reply, answer.Alias)
	}
	return reply
}

// ofZone returns the zone's answer to a question, its records in random order, and reports whether
// the name is one of the zone. It returns more records than fit a message, but not all of many.
func (s *Server) ofZone(q dns.Question) (answer records.Answer, own bool) {
	s.building <- struct{}{}
	defer func() { <-s.building }()
	if answer, own = s.zone.Answer(q); !own {
		return answer, false
	}
	if all := answer.Records; len(all) > 0 && all[0].Header().Rrtype != dns.TypeCNAME {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	answer.Records, answer.Extra = atMost(answer.Records), atMost(answer.Extra)
	return answer, true
}

// atMost returns the records, or the first of them without holding the others.
func atMost(all []dns.RR) []dns.RR {
	if len(all) <= maxRecords {
		return all
	}
	return slices.Clone(all[:maxRecords])
}

// follow adds what a name outside of the zone has to the records that lead to it.
func (s *Server) follow(ctx context.Context, r, reply *dns.Msg, name string) *dns.Msg {
	next := r.Copy()
	next.Question[0].Name = name
	found, err := s.forward.exchange(ctx, next)
	if err != nil {
		return new(dns.Msg).SetRcode(r, dns.RcodeServerFailure)
	}
	reply.Answer, reply.Ns, reply.Rcode = append(reply.Answer, found.Answer...), found.Ns, found.Rcode
	reply.Truncated = found.Truncated
	return reply
}
