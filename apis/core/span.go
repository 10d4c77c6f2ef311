package core

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"svc.dev/svc/apis/resource"
)

// span is a range of keys that can be allocated, numbered from zero. The first
// static keys are preferred for clients that name one: others are allocated from
// the remaining range until it is exhausted.
type span struct {
	size, static uint64
	// key returns the key of a number below size.
	key func(i uint64) string
}

// pick returns a key that is not taken, searching from a random offset. random
// returns a number below n, which is positive. It returns false if the span is full.
func (s span) pick(taken func(key string) bool, random func(n uint64) uint64) (string, bool) {
	for _, band := range []struct{ from, size uint64 }{{s.static, s.size - s.static}, {0, s.static}} {
		if band.size == 0 {
			continue
		}
		start := random(band.size)
		for i := range band.size {
			if key := s.key(band.from + (start+i)%band.size); !taken(key) {
				return key, true
			}
		}
	}
	return "", false
}

// addressSpan is the usable addresses of a range: not the network's own and,
// for IPv4, not the broadcast address. Of a very large range it is the first
// 2^62 addresses.
func addressSpan(cidr netip.Prefix) span {
	const largest = 62
	bits := min(cidr.Addr().BitLen()-cidr.Bits(), largest)
	total := uint64(1) << bits
	unusable := uint64(1)
	if cidr.Addr().Is4() {
		unusable = 2
	}
	if total <= unusable {
		return span{}
	}
	first := cidr.Masked().Addr().Next()
	return span{
		size:   total - unusable,
		static: staticBand(total, 16, 256, 16),
		key:    func(i uint64) string { return addressAt(first, i).String() },
	}
}

// portSpan is the ports of a range.
func portSpan(ports resource.PortRange) span {
	if ports.To < ports.From {
		return span{}
	}
	size := uint64(ports.To-ports.From) + 1
	return span{
		size:   size,
		static: staticBand(size, 16, 128, 32),
		key:    func(i uint64) string { return strconv.FormatUint(uint64(ports.From)+i, 10) },
	}
}

// staticBand is how many of the first numbers are kept for clients who name
// one: a fraction of the range within bounds, and none of a small range
// (Kubernetes' KEP-3070 and KEP-3668).
func staticBand(size, least, most, fraction uint64) uint64 {
	if size <= least {
		return 0
	}
	return min(max(size/fraction, least), most)
}

// addressAt is the i-th address after first.
func addressAt(first netip.Addr, i uint64) netip.Addr {
	if first.Is4() {
		b := first.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(i))
		return netip.AddrFrom4(b)
	}
	b := first.As16()
	low := binary.BigEndian.Uint64(b[8:])
	binary.BigEndian.PutUint64(b[8:], low+i)
	if low+i < low {
		binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+1)
	}
	return netip.AddrFrom16(b)
}
