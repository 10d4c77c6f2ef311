package nft

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

const (
	// maxDirect is how many operations of a transaction are sent to the kernel directly.
	maxDirect = 100
	// readBuffer is the size, in bytes, of the socket's buffer: the kernel acknowledges each
	// operation, and returns what is listed, in messages of up to two pages.
	readBuffer = maxDirect * 16 << 10
	// readTimeout is how long the kernel's responses are awaited. Of a transaction that fails
	// as a whole there may be one acknowledgement only.
	readTimeout = 10 * time.Second
)

// Run implements knftables.Interface. The program nft first lists the chains of all tables,
// which takes the longer the more services there are. So the few kinds of operations of which
// a change of a service consists are sent to the kernel directly. After an error, what the
// table has is not known.
func (k kernel) Run(ctx context.Context, tx *knftables.Transaction) error {
	if tx.NumOperations() <= maxDirect {
		if d, known := k.compile(tx.String()); known {
			if err := d.conn.Flush(); err != nil {
				return fmt.Errorf("change the table %s: %w", k.name, err)
			}
			return nil
		}
	}
	return k.Interface.Run(ctx, tx)
}

// direct is a transaction for the kernel.
type direct struct {
	conn  *nftables.Conn
	table *nftables.Table
}

// limitReads returns an option that sets the size of a socket's buffer and the end of its reads.
func limitReads(timeout time.Duration) nftables.SockOption {
	return func(socket *netlink.Conn) error {
		if err := socket.SetReadBuffer(readBuffer); err != nil {
			return fmt.Errorf("set the buffer of the socket: %w", err)
		}
		return socket.SetReadDeadline(time.Now().Add(timeout))
	}
}

// compile returns what the commands of a transaction are for the kernel. It reports false if
// it does not know one of them.
func (k kernel) compile(commands string) (direct, bool) {
	conn, err := dial()
	if err != nil {
		return direct{}, false
	}
	d := direct{conn, &nftables.Table{Name: k.name, Family: k.family}}
	for line := range strings.Lines(commands) {
		// VERB OBJECT FAMILY TABLE NAME ...
		words := strings.Fields(line)
		if len(words) < 5 || !d.add(words[0]+" "+words[1], words[4], words[5:]) {
			return direct{}, false
		}
	}
	return d, true
}

// add adds an operation, and reports whether it is known.
func (d direct) add(operation, name string, words []string) bool {
	chain := &nftables.Chain{Name: name, Table: d.table}
	switch {
	case operation == "add chain" && len(words) == 0:
		d.conn.AddChain(chain)
	case operation == "flush chain" && len(words) == 0:
		d.conn.FlushChain(chain)
	case operation == "delete chain" && len(words) == 0:
		d.conn.DelChain(chain)
	case operation == "add element" || operation == "delete element":
		element, known := elementOf(words)
		if !known {
			return false
		}
		change := d.conn.SetAddElements
		if operation == "delete element" {
			change = d.conn.SetDeleteElements
		}
		return change(&nftables.Set{Table: d.table, Name: name, IsMap: true, Concatenation: true}, []nftables.SetElement{element}) == nil
	default:
		return false
	}
	return true
}

// verdictOf returns a verdict, or nil if it is not known.
func verdictOf(words []string) *expr.Verdict {
	switch {
	case len(words) == 1 && words[0] == "drop":
		return &expr.Verdict{Kind: expr.VerdictDrop}
	case len(words) == 2 && words[0] == "goto":
		return &expr.Verdict{Kind: expr.VerdictGoto, Chain: words[1]}
	case len(words) == 2 && words[0] == "jump":
		return &expr.Verdict{Kind: expr.VerdictJump, Chain: words[1]}
	}
	return nil
}

func protocolOf(name string) (byte, bool) {
	switch name {
	case "tcp":
		return unix.IPPROTO_TCP, true
	case "udp":
		return unix.IPPROTO_UDP, true
	case "sctp":
		return unix.IPPROTO_SCTP, true
	}
	return 0, false
}

// elementOf returns the element of a set or map, whose key has fields of addresses, protocols and
// ports, and whose value is a verdict or has such fields, too:
// "{ 10.96.0.1 . tcp . 80 : goto CHAIN }". A delete has no value.
func elementOf(words []string) (nftables.SetElement, bool) {
	if len(words) < 3 || words[0] != "{" || words[len(words)-1] != "}" {
		return nftables.SetElement{}, false
	}
	key, value, hasValue := strings.Cut(strings.Join(words[1:len(words)-1], " "), " : ")
	var element nftables.SetElement
	var known bool
	if element.Key, known = fieldsOf(key); !known || !hasValue {
		return element, known
	}
	if element.VerdictData = verdictOf(strings.Fields(value)); element.VerdictData == nil {
		element.Val, known = fieldsOf(value)
	}
	return element, known
}

// fieldsOf returns fields that are separated by " . ": addresses, protocols, ports and, in the
// notation 0x1f, integers of 32 bits. Each begins at a multiple of four bytes.
func fieldsOf(text string) ([]byte, bool) {
	var all []byte
	for field := range strings.SplitSeq(text, " . ") {
		if address, err := netip.ParseAddr(field); err == nil {
			all = append(all, address.AsSlice()...)
		} else if protocol, known := protocolOf(field); known {
			all = append(all, protocol, 0, 0, 0)
		} else if port, err := strconv.ParseUint(field, 10, 16); err == nil {
			all = append(all, byte(port>>8), byte(port), 0, 0)
		} else if number, err := strconv.ParseUint(strings.TrimPrefix(field, "0x"), 16, 32); err == nil && strings.HasPrefix(field, "0x") {
			all = append(all, binaryutil.NativeEndian.PutUint32(uint32(number))...)
		} else {
			return nil, false
		}
	}
	return all, true
}
