// Package sctp sends and answers the first packets of SCTP associations (RFC 9260, section
// 5.1), by raw sockets: many kernels have connection tracking of SCTP, but no SCTP. One that has
// it answers an INIT, too, with an ABORT.
package sctp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// The types of chunks and of a parameter, and the lengths of headers (RFC 9260, section 3).
const (
	initiation      = 1
	acknowledgement = 2
	stateCookie     = 7

	commonHeader    = 12
	chunkHeader     = 20
	parameterHeader = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// packet is an INIT or an INIT ACK, which has a state cookie.
type packet struct {
	from, to uint16
	// verification is the tag of the receiver, and tag that of the sender.
	verification, tag uint32
	kind              byte
	cookie            []byte
}

func (p packet) encode() []byte {
	b := binary.BigEndian.AppendUint16(nil, p.from)
	b = binary.BigEndian.AppendUint16(b, p.to)
	b = binary.BigEndian.AppendUint32(b, p.verification)
	b = append(b, 0, 0, 0, 0) // the checksum
	length := chunkHeader
	if p.kind == acknowledgement {
		length += parameterHeader + len(p.cookie)
	}
	b = append(b, p.kind, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = binary.BigEndian.AppendUint32(b, p.tag)
	b = binary.BigEndian.AppendUint32(b, 1<<16) // the receiver's window
	b = append(b, 0, 1, 0, 1)                   // one stream in each direction
	b = binary.BigEndian.AppendUint32(b, 1)     // the first TSN
	if p.kind == acknowledgement {
		b = binary.BigEndian.AppendUint16(b, stateCookie)
		b = binary.BigEndian.AppendUint16(b, uint16(parameterHeader+len(p.cookie)))
		b = append(b, p.cookie...)
	}
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return b
}

// decode returns the packet that begins with an INIT or an INIT ACK of this package.
func decode(b []byte) (p packet, ok bool) {
	if len(b) < commonHeader+chunkHeader {
		return packet{}, false
	}
	p = packet{
		from: binary.BigEndian.Uint16(b), to: binary.BigEndian.Uint16(b[2:]),
		verification: binary.BigEndian.Uint32(b[4:]), kind: b[commonHeader], tag: binary.BigEndian.Uint32(b[commonHeader+4:]),
	}
	if rest := b[commonHeader+chunkHeader:]; p.kind == acknowledgement {
		if len(rest) < parameterHeader || int(binary.BigEndian.Uint16(rest[2:])) > len(rest) || binary.BigEndian.Uint16(rest[2:]) < parameterHeader {
			return packet{}, false
		}
		p.cookie = rest[parameterHeader:binary.BigEndian.Uint16(rest[2:])]
	}
	return p, p.kind == initiation || p.kind == acknowledgement
}

// network returns the network of raw sockets that an address is of.
func network(address netip.Addr) string {
	if address.Is4() {
		return "ip4:132"
	}
	return "ip6:132"
}

// Server answers at a port of an address.
type Server struct {
	conn net.PacketConn
	port uint16
}

// Listen returns a server at an IP address and a port. The unspecified address stands for all
// of its IP family. It needs CAP_NET_RAW.
func Listen(ctx context.Context, address string) (*Server, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, network(at.Addr()), at.Addr().String())
	if err != nil {
		return nil, err
	}
	return &Server{conn, at.Port()}, nil
}

// Serve answers each INIT with a state cookie that answer returns for the client's IP address,
// until Close.
func (s *Server) Serve(answer func(client net.Addr) []byte) error {
	buffer := make([]byte, 1500)
	for {
		n, client, err := s.conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		p, ok := decode(buffer[:n])
		if !ok || p.kind != initiation || p.to != s.port {
			continue
		}
		reply := packet{from: p.to, to: p.from, verification: p.tag, tag: p.tag, kind: acknowledgement, cookie: answer(client)}
		_, _ = s.conn.WriteTo(reply.encode(), client) // a client tries again
	}
}

// Close ends the server.
func (s *Server) Close() error { return s.conn.Close() }

// Conn is a client's end of an association that has not begun.
type Conn struct {
	conn net.Conn
	port uint16
}

// Dial returns an end with a port of an address. It sends nothing, and needs CAP_NET_RAW.
func Dial(ctx context.Context, address string) (*Conn, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port of %s: %w", address, err)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network(ip), host)
	if err != nil {
		return nil, err
	}
	return &Conn{conn, uint16(port)}, nil
}

// Init sends an INIT, and returns the state cookie of the answer. Errors that ICMP reports of
// any port of the address are returned, too: a raw socket has no port.
func (c *Conn) Init(deadline time.Time) (cookie []byte, err error) {
	if err := c.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	p := packet{from: uint16(32768 + rand.IntN(28000)), to: c.port, tag: rand.Uint32() | 1, kind: initiation}
	if _, err := c.conn.Write(p.encode()); err != nil {
		return nil, err
	}
	buffer := make([]byte, 1500)
	for {
		// Unlike Read, it leaves out the header of IPv4.
		n, _, err := c.conn.(*net.IPConn).ReadFrom(buffer)
		if err != nil {
			return nil, err
		}
		if reply, ok := decode(buffer[:n]); ok && reply.kind == acknowledgement && reply.from == p.to && reply.to == p.from && reply.verification == p.tag {
			return reply.cookie, nil
		}
	}
}

// Close closes the socket.
func (c *Conn) Close() error { return c.conn.Close() }
