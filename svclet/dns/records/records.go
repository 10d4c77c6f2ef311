package records

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/services"
)

const (
	// TTL is for how many seconds a client may keep a record, or the absence of one.
	TTL = 5
	// SchemaVersion is that of the specification,
	// https://github.com/kubernetes/dns/blob/master/docs/specification.md.
	SchemaVersion = "1.1.0"
	// The priority and the weight of SRV records: those of the specification's examples.
	priority, weight = 10, 100
	// maxAliases bounds a chain of external names that point to one another.
	maxAliases = 8
)

// Services are the services of which the records are.
type Services interface {
	// Get returns a service with its endpoints; the service is nil if there is none.
	Get(key services.Key) services.Object
	// HasNamespace reports whether a namespace has services.
	HasNamespace(name string) bool
	// ByAddress returns the services with a cluster IP or an endpoint of this address.
	ByAddress(address netip.Addr) []services.Key
}

// Zone is the cluster's domain.
type Zone struct {
	apex     string
	services Services
	server   services.Key
}

// New returns the zone of a domain, such as "cluster.local". server is the service of
// its name servers.
func New(domain string, all Services, server services.Key) *Zone {
	return &Zone{apex: dns.CanonicalName(domain), services: all, server: server}
}

// Contains reports whether a name is in the zone.
func (z *Zone) Contains(name string) bool { return dns.IsSubDomain(z.apex, dns.CanonicalName(name)) }

// Answer is the answer to a question about the zone.
type Answer struct {
	// Rcode is NXDOMAIN if there is no record of the name, and none of names below it;
	// with an external name, of the name that it stands for.
	Rcode int
	// Records answer the question, Extra are the addresses of names in them, and
	// Authority has the start of authority if nothing answers it (RFC 2308, section 2).
	Records, Extra, Authority []dns.RR
	// Alias is the name outside of the zone that the last of the records, of an external
	// name, points to. It has the rest of the answer.
	Alias string

	// answered is whether there are records of the type in question.
	answered bool
}

// Answer returns the answer to a question. It reports false for a question about names
// outside of the zone, and about an address that no service has: others may know who has
// that, and which addresses services can have no node knows.
func (z *Zone) Answer(q dns.Question) (Answer, bool) {
	if !z.Contains(q.Name) {
		found := z.reverse(q.Name)
		if !found.exists {
			return Answer{}, false
		}
		var answer Answer
		answer.take(found, q)
		return z.complete(answer), true
	}
	var answer Answer
	for name, visited := q.Name, 0; ; visited++ {
		found := z.at(name)
		if !found.exists {
			answer.Rcode = dns.RcodeNameError // also at the end of aliases (RFC 6604, section 3)
			return z.complete(answer), true
		}
		alias := answer.take(found, dns.Question{Name: name, Qtype: q.Qtype})
		switch {
		case alias == "":
			return z.complete(answer), true
		case visited == maxAliases:
			return Answer{Rcode: dns.RcodeServerFailure}, true
		case !z.Contains(alias):
			answer.Alias = alias
			return answer, true
		}
		name = alias
	}
}

// take adds those records of a name that answer a question. It returns the name that they
// stand for, if the question is about that.
func (a *Answer) take(found set, q dns.Question) (alias string) {
	records := found.records
	if q.Qtype == dns.TypeANY && len(records) > 0 {
		records = []dns.RR{&dns.HINFO{Hdr: of(dns.TypeHINFO), Cpu: "RFC8482"}} // its section 4.2
	}
	for _, record := range records {
		header := record.Header()
		cname, isAlias := record.(*dns.CNAME)
		if header.Rrtype != q.Qtype && !isAlias && q.Qtype != dns.TypeANY {
			continue
		}
		header.Name = q.Name
		a.Records = append(a.Records, record)
		if isAlias && q.Qtype != dns.TypeCNAME {
			return cname.Target
		}
		a.answered = true
	}
	if q.Qtype == dns.TypeSRV {
		a.Extra = found.targets
	}
	return ""
}

// complete adds the start of authority to an answer without records of the type.
func (z *Zone) complete(a Answer) Answer {
	if !a.answered {
		soa := z.authority()
		soa.Hdr.Name = z.apex
		a.Authority = []dns.RR{soa}
	}
	return a
}

// set is what a name has. Its records have no names yet, and targets are the addresses of
// the names in SRV records.
type set struct {
	exists           bool
	records, targets []dns.RR
}

func (s *set) add(records ...dns.RR) { s.records = append(s.records, records...) }

// at returns what a name of the zone has.
func (z *Zone) at(name string) set {
	labels := dns.SplitDomainName(strings.TrimSuffix(dns.CanonicalName(name), z.apex))
	s := set{exists: true}
	n := len(labels)
	switch {
	case n == 0:
		s.add(z.authority(), &dns.NS{Hdr: of(dns.TypeNS), Ns: z.name("ns.dns")})
	case n == 1 && labels[0] == "dns-version":
		s.add(&dns.TXT{Hdr: of(dns.TypeTXT), Txt: []string{SchemaVersion}})
	case n == 1 && slices.Contains([]string{"svc", "pod", "dns"}, labels[0]):
		// Only names below it have records.
	case n == 2 && labels[1] == "dns" && labels[0] == "ns":
		if server := z.services.Get(z.server).Service; server != nil {
			s.add(addresses(server.Spec.ClusterIPs...)...)
		}
	case n == 2 && labels[1] == "pod":
		// Every address has a name in every namespace.
	case n == 3 && labels[2] == "pod":
		return pod(labels[0])
	case n == 2 && labels[1] == "svc":
		// Without services it has no names below it.
		s.exists = z.services.HasNamespace(labels[0])
	case n >= 3 && n <= 5 && labels[n-1] == "svc":
		return z.service(labels[:n-3], services.Key{Name: labels[n-3], Namespace: labels[n-2]})
	default:
		s.exists = false
	}
	return s
}

// pod returns the record of a pod, whose name is its address.
func pod(label string) set {
	for _, separator := range []string{".", ":"} {
		if ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", separator)); err == nil {
			return set{exists: true, records: addresses(ip.String())}
		}
	}
	return set{}
}

// service returns what a service has, or a name below it: labels are those before its
// own.
func (z *Zone) service(labels []string, key services.Key) set {
	object := z.services.Get(key)
	if object.Service == nil {
		return set{}
	}
	spec := &object.Service.Spec
	switch {
	case spec.Type == corev1.ServiceTypeExternalName && len(labels) == 0:
		// Also a name that looks like an address is none (Service.spec.externalName).
		return set{exists: true, records: []dns.RR{&dns.CNAME{Hdr: of(dns.TypeCNAME), Target: dns.Fqdn(spec.ExternalName)}}}
	case spec.Type == corev1.ServiceTypeExternalName:
		return set{}
	case headless(spec):
		return z.headless(labels, key, object)
	case len(labels) == 0:
		return set{exists: true, records: addresses(spec.ClusterIPs...)}
	}
	port, exists := portOf(labels, spec.Ports)
	s := set{exists: exists}
	if port != nil {
		own := z.serviceName(key)
		s.add(srv(own, port.Port))
		s.targets = named(own, spec.ClusterIPs...)
	}
	return s
}

// headless returns what a service without a cluster IP has: without ready endpoints,
// nothing.
func (z *Zone) headless(labels []string, key services.Key, object services.Object) set {
	endpoints := endpointsOf(object)
	if len(endpoints) == 0 {
		return set{}
	}
	var s set
	if len(labels) == 1 && !strings.HasPrefix(labels[0], "_") {
		for _, e := range endpoints {
			if e.name == labels[0] {
				s.exists = true
				s.add(addresses(e.address)...)
			}
		}
		return s
	}
	var all []string
	for _, e := range endpoints {
		all = append(all, e.address)
	}
	if len(labels) == 0 {
		return set{exists: true, records: addresses(all...)}
	}
	port, exists := portOf(labels, object.Service.Spec.Ports)
	s.exists = exists
	if port == nil {
		return s
	}
	own := z.serviceName(key)
	for _, e := range endpoints {
		number, found := e.ports[portKey{port.Name, port.Protocol}]
		if !found {
			continue
		}
		target := e.name + "." + own
		s.add(srv(target, number))
		s.targets = append(s.targets, named(target, e.address)...)
	}
	// A host name may have several addresses, and an address may be in several slices.
	s.records, s.targets = dns.Dedup(s.records, nil), dns.Dedup(s.targets, nil)
	return s
}

// portOf returns the port that labels name, _NAME and _PROTOCOL. It reports whether the
// labels exist: that of a protocol does if a named port has it.
func portOf(labels []string, ports []corev1.ServicePort) (*corev1.ServicePort, bool) {
	protocol := labels[len(labels)-1]
	exists := false
	for i := range ports {
		p := &ports[i]
		if p.Name == "" || protocol != "_"+strings.ToLower(string(p.Protocol)) {
			continue
		}
		switch {
		case len(labels) == 1:
			exists = true
		case labels[0] == "_"+p.Name:
			return p, true
		}
	}
	return nil, exists
}

// reverse returns the names of an address.
func (z *Zone) reverse(name string) set {
	address, ok := addressOf(name)
	if !ok {
		return set{}
	}
	var s set
	for _, key := range z.services.ByAddress(address) {
		object := z.services.Get(key)
		if object.Service == nil || object.Service.Spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		own := z.serviceName(key)
		if slices.ContainsFunc(object.Service.Spec.ClusterIPs, func(ip string) bool { return isAddress(ip, address) }) {
			s.add(&dns.PTR{Hdr: of(dns.TypePTR), Ptr: own})
			continue
		}
		if !headless(&object.Service.Spec) {
			continue
		}
		for _, e := range endpointsOf(object) {
			if isAddress(e.address, address) {
				s.add(&dns.PTR{Hdr: of(dns.TypePTR), Ptr: e.name + "." + own})
			}
		}
	}
	s.records = dns.Dedup(s.records, nil)
	s.exists = len(s.records) > 0
	return s
}

func headless(spec *corev1.ServiceSpec) bool { return spec.ClusterIP == corev1.ClusterIPNone }

// authority returns the zone's start of authority. Nothing transfers the zone, so that
// its serial number never changes.
func (z *Zone) authority() *dns.SOA {
	return &dns.SOA{
		Hdr: of(dns.TypeSOA), Ns: z.name("ns.dns"), Mbox: z.name("hostmaster"),
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: TTL,
	}
}

func (z *Zone) name(below string) string { return below + "." + z.apex }

func (z *Zone) serviceName(key services.Key) string {
	return z.name(key.Name + "." + key.Namespace + ".svc")
}
