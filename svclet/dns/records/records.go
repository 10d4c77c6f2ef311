package records

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

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
)

// Services are the services of which the records are.
type Services interface {
	// Get returns a service with its endpoints; the service is nil if there is none.
	Get(key services.Key) services.Object
	// HasNamespace reports whether a namespace has services.
	HasNamespace(name string) bool
	// ByAddress returns the services with a cluster IP or an endpoint of this address.
	ByAddress(address string) []services.Key
}

// Zone is the cluster's domain.
type Zone struct {
	// Domain is its name, such as "cluster.local".
	Domain   string
	Services Services
	// Server is the service of the zone's name servers.
	Server services.Key
}

// Answer is the answer to a question about the zone.
type Answer struct {
	// Exists is false if there is no record of that name, and none of names below it
	// (NXDOMAIN).
	Exists bool
	// Records answer the question, Extra are the addresses of names in them, and
	// Authority has the start of authority if there are no records.
	Records, Extra, Authority []dns.RR
}

// Answer returns the answer to a question. It reports false for a question about names
// outside of the zone, or about an address that no service has.
func (z Zone) Answer(q dns.Question) (Answer, bool) {
	name := strings.ToLower(dns.Fqdn(q.Name))
	apex := dns.Fqdn(z.Domain)
	var found set
	if dns.IsSubDomain(apex, name) {
		found = z.at(dns.SplitDomainName(strings.TrimSuffix(name, apex)))
	} else if found = z.reverse(name); !found.exists {
		return Answer{}, false
	}
	answer := Answer{Exists: found.exists}
	for _, record := range found.records {
		header := record.Header()
		if header.Rrtype != q.Qtype && header.Rrtype != dns.TypeCNAME {
			continue
		}
		header.Name, header.Class, header.Ttl = q.Name, dns.ClassINET, TTL
		answer.Records = append(answer.Records, record)
	}
	if q.Qtype == dns.TypeSRV {
		answer.Extra = found.targets
	}
	if len(answer.Records) == 0 {
		soa := z.authority()
		soa.Hdr = dns.RR_Header{Name: apex, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: TTL}
		answer.Authority = []dns.RR{soa}
	}
	return answer, true
}

// set is what a name has. Records have no names, classes and times to live yet, and
// targets are the addresses of the names in SRV records.
type set struct {
	exists           bool
	records, targets []dns.RR
}

func (s *set) add(records ...dns.RR) { s.records = append(s.records, records...) }

// at returns what a name of the zone has. labels are those before the zone's.
func (z Zone) at(labels []string) set {
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
		if server := z.Services.Get(z.Server).Service; server != nil {
			s.add(addresses(server.Spec.ClusterIPs...)...)
		}
	case n == 2 && labels[1] == "pod":
	case n == 3 && labels[2] == "pod":
		return pod(labels[0])
	case n == 2 && labels[1] == "svc":
		s.exists = z.Services.HasNamespace(labels[0])
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
func (z Zone) service(labels []string, key services.Key) set {
	object := z.Services.Get(key)
	if object.Service == nil {
		return set{}
	}
	spec := &object.Service.Spec
	switch {
	case len(labels) == 0 && spec.Type == corev1.ServiceTypeExternalName:
		return set{exists: true, records: external(spec.ExternalName)}
	case len(labels) == 0:
		s := set{exists: true}
		if !headless(spec) {
			s.add(addresses(spec.ClusterIPs...)...)
			return s
		}
		for _, e := range endpointsOf(object) {
			s.add(addresses(e.address)...)
		}
		return s
	case spec.Type == corev1.ServiceTypeExternalName:
		return set{}
	case len(labels) == 2:
		return z.port(labels[0], labels[1], key, object)
	case strings.HasPrefix(labels[0], "_"):
		return set{exists: slices.ContainsFunc(spec.Ports, func(p corev1.ServicePort) bool { return p.Name != "" && labels[0] == label(p.Protocol) })}
	}
	var s set
	if headless(spec) {
		for _, e := range endpointsOf(object) {
			if e.name == labels[0] {
				s.exists = true
				s.add(addresses(e.address)...)
			}
		}
	}
	return s
}

// port returns the SRV records of a named port.
func (z Zone) port(name, protocol string, key services.Key, object services.Object) set {
	spec := &object.Service.Spec
	i := slices.IndexFunc(spec.Ports, func(p corev1.ServicePort) bool { return "_"+p.Name == name && label(p.Protocol) == protocol })
	if i < 0 || name == "_" {
		return set{}
	}
	own, port := z.serviceName(key), &spec.Ports[i]
	s := set{exists: true}
	if !headless(spec) {
		s.add(srv(own, port.Port))
		s.targets = named(own, spec.ClusterIPs...)
		return s
	}
	for _, e := range endpointsOf(object) {
		number, found := e.ports[port.Name+" "+string(port.Protocol)]
		if !found {
			continue
		}
		target := e.name + "." + own
		if record := srv(target, number); !slices.ContainsFunc(s.records, func(r dns.RR) bool { return dns.IsDuplicate(r, record) }) {
			s.add(record)
		}
		s.targets = append(s.targets, named(target, e.address)...)
	}
	return s
}

// label returns the label of a protocol.
func label(p corev1.Protocol) string { return "_" + strings.ToLower(string(p)) }

// reverse returns the names of an address.
func (z Zone) reverse(name string) set {
	address := addressOf(name)
	var s set
	if address == "" {
		return s
	}
	for _, key := range z.Services.ByAddress(address) {
		object := z.Services.Get(key)
		if object.Service == nil || object.Service.Spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		own := z.serviceName(key)
		if slices.Contains(object.Service.Spec.ClusterIPs, address) {
			s.add(&dns.PTR{Hdr: of(dns.TypePTR), Ptr: own})
			continue
		}
		if !headless(&object.Service.Spec) {
			continue
		}
		for _, e := range endpointsOf(object) {
			if e.address == address {
				s.add(&dns.PTR{Hdr: of(dns.TypePTR), Ptr: e.name + "." + own})
			}
		}
	}
	s.exists = len(s.records) > 0
	return s
}

// addressOf returns the address of a name of in-addr.arpa or ip6.arpa, empty if it is
// none.
func addressOf(name string) string {
	labels := dns.SplitDomainName(name)
	slices.Reverse(labels)
	switch {
	case strings.HasSuffix(name, ".in-addr.arpa.") && len(labels) == 6:
		if ip, err := netip.ParseAddr(strings.Join(labels[2:], ".")); err == nil {
			return ip.String()
		}
	case strings.HasSuffix(name, ".ip6.arpa.") && len(labels) == 34:
		var text strings.Builder
		for i, digit := range labels[2:] {
			if i > 0 && i%4 == 0 {
				text.WriteByte(':')
			}
			text.WriteString(digit)
		}
		if ip, err := netip.ParseAddr(text.String()); err == nil {
			return ip.String()
		}
	}
	return ""
}

// endpoint is a ready endpoint of a service.
type endpoint struct {
	// name is its label below the service.
	name, address string
	// ports are the numbers of "NAME PROTOCOL".
	ports map[string]int32
}

// endpointsOf returns the ready endpoints, each address once for each slice that has it.
func endpointsOf(object services.Object) []endpoint {
	var all []endpoint
	for _, slice := range object.Slices {
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		ports := map[string]int32{}
		for _, p := range slice.Ports {
			if p.Port != nil {
				ports[ptr.Deref(p.Name, "")+" "+string(ptr.Deref(p.Protocol, corev1.ProtocolTCP))] = *p.Port
			}
		}
		for _, e := range slice.Endpoints {
			if !ptr.Deref(e.Conditions.Ready, true) {
				continue
			}
			for _, address := range e.Addresses {
				name := ptr.Deref(e.Hostname, "")
				if name == "" {
					name = strings.NewReplacer(".", "-", ":", "-").Replace(address)
				}
				all = append(all, endpoint{name, address, ports})
			}
		}
	}
	return all
}

func headless(spec *corev1.ServiceSpec) bool { return spec.ClusterIP == corev1.ClusterIPNone }

// external returns the record of an external name, which may be an address.
func external(name string) []dns.RR {
	if records := addresses(name); len(records) > 0 {
		return records
	}
	return []dns.RR{&dns.CNAME{Hdr: of(dns.TypeCNAME), Target: dns.Fqdn(name)}}
}

// addresses returns the records of addresses, each once.
func addresses(texts ...string) []dns.RR {
	var records []dns.RR
	for _, text := range texts {
		ip, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			continue
		case ip.Is4():
			records = append(records, &dns.A{Hdr: of(dns.TypeA), A: net.IP(ip.AsSlice())})
		default:
			records = append(records, &dns.AAAA{Hdr: of(dns.TypeAAAA), AAAA: net.IP(ip.AsSlice())})
		}
	}
	return dns.Dedup(records, nil)
}

// named returns the complete records of the addresses of a name.
func named(name string, texts ...string) []dns.RR {
	records := addresses(texts...)
	for _, record := range records {
		header := record.Header()
		header.Name, header.Class, header.Ttl = name, dns.ClassINET, TTL
	}
	return records
}

func srv(target string, port int32) dns.RR {
	return &dns.SRV{Hdr: of(dns.TypeSRV), Priority: priority, Weight: weight, Port: uint16(port), Target: target} //nolint:gosec // a port
}

func of(kind uint16) dns.RR_Header {
	return dns.RR_Header{Rrtype: kind, Class: dns.ClassINET, Ttl: TTL}
}

// authority returns the zone's start of authority. Nothing transfers the zone, so that
// its serial number never changes.
func (z Zone) authority() *dns.SOA {
	return &dns.SOA{
		Hdr: of(dns.TypeSOA), Ns: z.name("ns.dns"), Mbox: z.name("hostmaster"),
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: TTL,
	}
}

func (z Zone) name(below string) string { return below + "." + dns.Fqdn(z.Domain) }

func (z Zone) serviceName(key services.Key) string {
	return z.name(fmt.Sprintf("%s.%s.svc", key.Name, key.Namespace))
}
