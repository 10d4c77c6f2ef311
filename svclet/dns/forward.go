package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// forwardTimeout bounds the wait for one resolver.
	forwardTimeout = 2 * time.Second
	// cacheSize is the number of answers that are kept, and maxCacheTTL the longest time.
	cacheSize   = 10000
	maxCacheTTL = 30 * time.Second
)

// forwarder asks the machine's resolvers, and caches their answers.
type forwarder struct {
	file    string
	clock   clock.Clock
	own     func() []string
	waiting chan struct{}
	cache   *cache.LRUExpireCache
	failing atomic.Bool
	// port is that of resolvers.
	port string
}

func newForwarder(file string, c clock.Clock, own func() []string) *forwarder {
	return &forwarder{
		file: file, clock: c, own: own, waiting: make(chan struct{}, maxForwards),
		cache: cache.NewLRUExpireCacheWithClock(cacheSize, c), port: "53",
	}
}

// question identifies answers in the cache.
type question struct {
	dns.Question
	dnssec, unchecked bool
}

// cached is an answer and when it came.
type cached struct {
	message *dns.Msg
	at      time.Time
}

// exchange returns the resolvers' answer to a message.
func (f *forwarder) exchange(ctx context.Context, r *dns.Msg) (*dns.Msg, error) {
	key := question{Question: r.Question[0], unchecked: r.CheckingDisabled}
	key.Name = strings.ToLower(key.Name)
	if edns := r.IsEdns0(); edns != nil {
		key.dnssec = edns.Do()
	}
	if hit, found := f.cache.Get(key); found {
		return f.fromCache(r, hit.(cached)), nil
	}
	select {
	case f.waiting <- struct{}{}:
		defer func() { <-f.waiting }()
	default:
		return nil, errBusy
	}
	answer, err := f.ask(ctx, r, key.dnssec)
	if err != nil {
		if !f.failing.Swap(true) {
			klog.FromContext(ctx).Error(err, "Failed to forward DNS questions to the machine's resolvers", "resolvConf", f.file)
		}
		return nil, err
	}
	if f.failing.Swap(false) {
		klog.FromContext(ctx).Info("The machine's resolvers answer again")
	}
	if ttl := lifetime(answer); ttl > 0 {
		f.cache.Add(key, cached{answer.Copy(), f.clock.Now()}, ttl)
	}
	return answered(r, answer), nil
}

// fromCache returns a cached answer, whose records live shorter by its age.
func (f *forwarder) fromCache(r *dns.Msg, hit cached) *dns.Msg {
	answer := answered(r, hit.message.Copy())
	age := uint32(f.clock.Since(hit.at) / time.Second) //nolint:gosec // at most maxCacheTTL
	for _, record := range slices.Concat(answer.Answer, answer.Ns, answer.Extra) {
		if header := record.Header(); header.Rrtype != dns.TypeOPT {
			header.Ttl -= min(age, header.Ttl)
		}
	}
	return answer
}

// answered makes an answer that to this message.
func answered(r, answer *dns.Msg) *dns.Msg {
	answer.Id, answer.Question = r.Id, r.Question
	// Options between this server and the resolver are not those with the client.
	answer.Extra = slices.DeleteFunc(answer.Extra, func(record dns.RR) bool { return record.Header().Rrtype == dns.TypeOPT })
	return answer
}

// ask asks the resolvers one after the other.
func (f *forwarder) ask(ctx context.Context, r *dns.Msg, dnssec bool) (*dns.Msg, error) {
	resolvers, err := f.resolvers()
	if err != nil {
		return nil, err
	}
	ask := new(dns.Msg)
	ask.Question = slices.Clone(r.Question)
	ask.RecursionDesired, ask.CheckingDisabled, ask.AuthenticatedData = r.RecursionDesired, r.CheckingDisabled, r.AuthenticatedData
	ask.SetEdns0(udpSize, dnssec)
	var errs []error
	for _, resolver := range resolvers {
		ask.Id = dns.Id()
		answer, err := askOne(ctx, ask, resolver)
		if err == nil && answer.Rcode != dns.RcodeServerFailure && answer.Rcode != dns.RcodeRefused {
			return answer, nil
		}
		if err == nil {
			err = errors.New(dns.RcodeToString[answer.Rcode])
		}
		errs = append(errs, fmt.Errorf("%s: %w", resolver, err))
	}
	return nil, errors.Join(errs...)
}

// askOne asks a resolver by UDP and, if the answer is too long for that, by TCP.
func askOne(ctx context.Context, ask *dns.Msg, resolver string) (*dns.Msg, error) {
	var answer *dns.Msg
	for _, network := range []string{"udp", "tcp"} {
		client := dns.Client{Net: network, Timeout: forwardTimeout, UDPSize: udpSize}
		var err error
		if answer, _, err = client.ExchangeContext(ctx, ask, resolver); err != nil {
			return nil, err
		}
		if len(answer.Question) != 1 || !strings.EqualFold(answer.Question[0].Name, ask.Question[0].Name) || answer.Question[0].Qtype != ask.Question[0].Qtype {
			return nil, errors.New("the answer is to another question")
		}
		if !answer.Truncated {
			break
		}
	}
	return answer, nil
}

// resolvers returns the addresses of the machine's resolvers, without this server.
func (f *forwarder) resolvers() ([]string, error) {
	config, err := dns.ClientConfigFromFile(f.file)
	if err != nil {
		return nil, err
	}
	var all []string
	own := f.own()
	for _, server := range config.Servers {
		if !slices.Contains(own, server) {
			all = append(all, net.JoinHostPort(server, f.port))
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s names no resolver", f.file)
	}
	return all, nil
}

// lifetime returns for how long an answer may be cached.
func lifetime(answer *dns.Msg) time.Duration {
	if answer.Truncated || answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError {
		return 0
	}
	ttl := uint32(maxCacheTTL / time.Second)
	negative := answer.Rcode == dns.RcodeNameError || len(answer.Answer) == 0
	for _, record := range slices.Concat(answer.Answer, answer.Ns) {
		ttl = min(ttl, record.Header().Ttl)
		if soa, ok := record.(*dns.SOA); ok {
			ttl, negative = min(ttl, soa.Minttl), false
		}
	}
	if negative {
		return 0 // without a start of authority it must not be cached (RFC 2308, section 5)
	}
	return time.Duration(ttl) * time.Second
}
