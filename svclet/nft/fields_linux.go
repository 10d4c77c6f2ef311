package nft

import (
	"encoding/binary"
	"net/netip"
	"strconv"
)

// Kind is that of a field of the keys and values of sets and maps. Each field begins at a multiple of four
// bytes.
type Kind int

// The kinds of fields: addresses, ports and numbers of 32 bits in the byte order of the machine.
const (
	IPv4 Kind = iota
	IPv6
	Protocol
	Port
	Number
)

// size returns for how many bytes a field has room.
func (k Kind) size() int {
	if k == IPv6 {
		return 16
	}
	return 4
}

// text returns a field as nft writes it; a number is a decimal one. It is empty for a protocol that no
// service has.
func (k Kind) text(raw []byte) string {
	switch k {
	case IPv4, IPv6:
		address, _ := netip.AddrFromSlice(raw)
		return address.String()
	case Protocol:
		for _, name := range []string{"tcp", "udp", "sctp"} {
			if number, _ := protocolOf(name); number == raw[0] {
				return name
			}
		}
		return ""
	case Port:
		return strconv.Itoa(int(binary.BigEndian.Uint16(raw)))
	default:
		return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(raw)), 10)
	}
}

// Fields returns the fields of a key or value, of some kinds, as nft writes them; nil if it has others.
func Fields(raw []byte, kinds ...Kind) []string {
	var all []string
	for _, kind := range kinds {
		if len(raw) < kind.size() {
			return nil
		}
		all, raw = append(all, kind.text(raw[:kind.size()])), raw[kind.size():]
	}
	if len(raw) > 0 {
		return nil
	}
	return all
}
