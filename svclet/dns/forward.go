package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// forwardTimeout bounds the wait for all resolvers: clients wait for 5 seconds.
	forwardTimeout = 4 * time.Second
	// avoidPeriod is for how long a resolver that has not answered is asked last.
	avoidPeriod = 10 * time.Second
	// maxForwards bounds the questions that wait for answers of the machine's resolvers.
	maxForwards = 1000
	// cacheSize is the number of answers that are kept, and maxCacheTTL the longest time.
	cacheSize   = 10000
	maxCacheTTL = 30 * time.Second
	// maxCached is the largest answer, in bytes without compression, that is kept.
	maxCached = 2 << 10
)

// forwarder asks the machine's resolvers, and caches their answers.
type forwarder struct {
	file    string
	clock   clock.Clock
	own     func() []string
	waiting chan struct{}
	cache   *cache.LRUExpireCache
	failing atomic.Bool
	// timeout bounds the wait for all resolvers, and port is theirs.
	timeout time.Duration
	port    string

	mu sync.Mutex
	// silent is when resolvers last did not answer.
	silent map[string]time.Time
}

func newForwarder(file string, c clock.Clock, own func() []string) *forwarder {
	return &forwarder{
		file: file, clock: c, own: own, waiting: make(chan struct{}, maxForwards),
		cache: cache.NewLRUExpireCacheWithClock(cacheSize, c), timeout: forwardTimeout, port: "53", silent: map[string]time.Time{},
	}
}

// question identifies answers in the cache.
type question struct {
	dns.Question
	dnssec, unchecked, recursive bool
}

// cached is an answer and when it came.
type cached struct {
	message *dns.Msg
	at      time.Time
}

// errBusy is returned while too many questions wait.
var errBusy = errors.New("too many questions are being forwarded")

// exchange returns the resolvers' answer to a message.
func (f *forwarder) exchange(ctx context.Context, r *dns.Msg) (*dns.Msg, error) {
	key := question{Question: r.Question[0], unchecked: r.CheckingDisabled, recursive: r.RecursionDesired}
	key.Name = dns.CanonicalName(key.Name)
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
		if ctx.Err() == nil && !f.failing.Swap(true) {
			klog.FromContext(ctx).Error(err, "Failed to forward DNS questions to the machine's resolvers", "resolvConf", f.file)
		}
		return nil, err
	}
	if f.failing.Swap(false) {
		klog.FromContext(ctx).Info("The machine's resolvers answer again")
	}
	// Options between this server and the resolver are not those with the client.
	answer.Extra = slices.DeleteFunc(answer.Extra, func(record dns.RR) bool { return record.Header().Rrtype == dns.TypeOPT })
	if ttl := lifetime(answer); ttl > 0 && answer.Len() <= maxCached {
		f.cache.Add(key, cached{answer.Copy(), f.clock.Now()}, ttl)
	}
	return answered(r, answer), nil
}

// fromCache returns a cached answer, whose records live shorter by its age.
func (f *forwarder) fromCache(r *dns.Msg, hit cached) *dns.Msg {
	answer := answered(r, hit.message.Copy())
	answer.Authoritative = false
	age := uint32(f.clock.Since(hit.at) / time.Second) //nolint:gosec // at most maxCacheTTL
	for _, record := range slices.Concat(answer.Answer, answer.Ns, answer.Extra) {
		header := record.Header()
		header.Ttl -= min(age, header.Ttl)
	}
	return answer
}

// answered makes an answer that to this message.
func answered(r, answer *dns.Msg) *dns.Msg {
	answer.Id, answer.Question, answer.RecursionDesired = r.Id, r.Question, r.RecursionDesired
	return answer
}

// ask asks the resolvers one after the other, each for an equal part of the time. It returns an
// incomplete answer only if none has a complete one.
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
	var part *dns.Msg
	for _, resolver := range resolvers {
		ask.Id = dns.Id()
		turn, cancel := context.WithTimeout(ctx, f.timeout/time.Duration(len(resolvers)))
		answer, err := askOne(turn, ask, resolver)
		cancel()
		f.note(resolver, err == nil)
		switch {
		case err != nil:
		case answer.Rcode == dns.RcodeServerFailure || answer.Rcode == dns.RcodeRefused:
			err = errors.New(dns.RcodeToString[answer.Rcode])
		case !answer.Truncated:
			return answer, nil
		case part == nil:
			part = answer
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", resolver, err))
		}
	}
	if part != nil {
		return part, nil
	}
	return nil, errors.Join(errs...)
}

// askOne asks a resolver. One that does not know EDNS, and so refuses the format or the kind of
// the message, is asked again without it (RFC 6891, section 7).
func askOne(ctx context.Context, ask *dns.Msg, resolver string) (*dns.Msg, error) {
	answer, err := askWhole(ctx, ask, resolver)
	if err == nil && (answer.Rcode == dns.RcodeFormatError || answer.Rcode == dns.RcodeNotImplemented) {
		plain := ask.Copy()
		plain.Extra = nil
		answer, err = askWhole(ctx, plain, resolver)
	}
	if err != nil {
		return nil, err
	}
	if len(answer.Question) != 1 || !strings.EqualFold(answer.Question[0].Name, ask.Question[0].Name) || answer.Question[0].Qtype != ask.Question[0].Qtype {
		return nil, errors.New("the answer is to another question")
	}
	return answer, nil
}

// askWhole asks a resolver by UDP and, if the answer is too long for that, by TCP. Without an
// answer by TCP it returns the part that has come: the resolver is not silent.
func askWhole(ctx context.Context, ask *dns.Msg, resolver string) (*dns.Msg, error) {
	answer, err := askBy(ctx, "udp", ask, resolver)
	if err != nil || !answer.Truncated {
		return answer, err
	}
	whole, err := askBy(ctx, "tcp", ask, resolver)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to ask a resolver by TCP, its answer by UDP is incomplete", "resolver", resolver, "err", err)
		return answer, nil
	}
	return whole, nil
}

func askBy(ctx context.Context, network string, ask *dns.Msg, resolver string) (*dns.Msg, error) {
	client := dns.Client{Net: network, UDPSize: udpSize, Timeout: forwardTimeout}
	conn, err := client.DialContext(ctx, resolver)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// The client observes the deadline of ctx, but not its end.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	answer, _, err := client.ExchangeWithConnContext(ctx, ask, conn)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // and not that the connection was closed
	}
	return answer, err
}

// note records whether a resolver has answered.
func (f *forwarder) note(resolver string, answered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if answered {
		delete(f.silent, resolver)
	} else {
		f.silent[resolver] = f.clock.Now()
	}
}

// resolvers returns the addresses of the machine's resolvers, without this server: in the
// order of the file, but those last that did not answer lately.
func (f *forwarder) resolvers() ([]string, error) {
	config, err := dns.ClientConfigFromFile(f.file)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all, last []string
	own := f.own()
	for _, server := range config.Servers {
		if slices.Contains(own, server) {
			continue
		}
		address := net.JoinHostPort(server, f.port)
		if at, silent := f.silent[address]; silent && f.clock.Since(at) < avoidPeriod {
			last = append(last, address)
		} else {
			all = append(all, address)
		}
	}
	if len(all)+len(last) == 0 {
		return nil, fmt.Errorf("%s names no resolver", f.file)
	}
	return append(all, last...), nil
}

// lifetime returns for how long an answer may be cached.
func lifetime(answer *dns.Msg) time.Duration {
	if answer.Truncated || answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError {
		return 0
	}
	ttl := uint32(maxCacheTTL / time.Second)
	// An answer without records of the type, which may have those of aliases, lives as
	// long as its start of authority says; without one it must not be cached (RFC 2308,
	// section 5).
	q := answer.Question[0]
	negative := answer.Rcode == dns.RcodeNameError || !slices.ContainsFunc(answer.Answer, func(record dns.RR) bool {
		return record.Header().Rrtype == q.Qtype || q.Qtype == dns.TypeANY
	})
	for _, record := range slices.Concat(answer.Answer, answer.Ns) {
		ttl = min(ttl, record.Header().Ttl)
		if soa, ok := record.(*dns.SOA); ok {
			ttl, negative = min(ttl, soa.Minttl), false
		}
	}
	if negative {
		return 0
	}
	return time.Duration(ttl) * time.Second
}
