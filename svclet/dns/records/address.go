package records

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"svc.dev/svc/svclet/services"
)

const (
	reverse4 = "in-addr.arpa."
	reverse6 = "ip6.arpa."
)

// IsReverse reports whether a name is below those of addresses.
func IsReverse(name string) bool {
	return dns.IsSubDomain(reverse4, name) || dns.IsSubDomain(reverse6, name)
}

// addressOf returns the address that a name of in-addr.arpa or ip6.arpa stands for, and
// false if it is none.
func addressOf(name string) (netip.Addr, bool) {
	labels := dns.SplitDomainName(name)
	slices.Reverse(labels)
	var text string
	switch {
	case dns.IsSubDomain(reverse4, name) && len(labels) == 2+4:
		text = strings.Join(labels[2:], ".")
	case dns.IsSubDomain(reverse6, name) && len(labels) == 2+32:
		var digits strings.Builder
		for i, digit := range labels[2:] {
			if len(digit) != 1 {
				return netip.Addr{}, false
			}
			if i > 0 && i%4 == 0 {
				digits.WriteByte(':')
			}
			digits.WriteString(digit)
		}
		text = digits.String()
	default:
		return netip.Addr{}, false
	}
	address, err := netip.ParseAddr(text)
	return address, err == nil
}

// isAddress reports whether a text is an address, in whichever notation.
func isAddress(text string, address netip.Addr) bool {
	parsed, ok := services.Address(text)
	return ok && parsed == address
}

// addresses returns the records of addresses, each once.
func addresses(texts ...string) []dns.RR {
	var records []dns.RR
	seen := map[netip.Addr]bool{}
	for _, text := range texts {
		ip, ok := services.Address(text)
		if !ok || seen[ip] {
			continue
		}
		seen[ip] = true
		if ip.Is4() {
			records = append(records, &dns.A{Hdr: of(dns.TypeA), A: net.IP(ip.AsSlice())})
		} else {
			records = append(records, &dns.AAAA{Hdr: of(dns.TypeAAAA), AAAA: net.IP(ip.AsSlice())})
		}
	}
	return records
}

// named returns the records of the addresses of a name.
func named(name string, texts ...string) []dns.RR {
	records := addresses(texts...)
	for _, record := range records {
		record.Header().Name = name
	}
	return records
}

func srv(target string, port int32) dns.RR {
	return &dns.SRV{Hdr: of(dns.TypeSRV), Priority: priority, Weight: weight, Port: uint16(port), Target: target} //nolint:gosec // a port
}

// of returns the header of a record without a name.
func of(kind uint16) dns.RR_Header {
	return dns.RR_Header{Rrtype: kind, Class: dns.ClassINET, Ttl: TTL}
}
