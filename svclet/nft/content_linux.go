package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// has counts the rules, and then the elements of each set and map of a content until one differs. It
// decodes no more than it counts.
func (k kernel) has(ctx context.Context, want Content) (bool, error) {
	if there, err := k.exists(ctx); !there {
		return false, err
	}
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return false, fmt.Errorf("open a socket of netfilter: %w", err)
	}
	defer socket.Close()
	if err := limitReads(readTimeout)(socket); err != nil { // for all that is read, as in members
		return false, err
	}
	rules := map[string]int{}
	if err := k.list(socket, unix.NFT_MSG_GETRULE, "", func(a *netlink.AttributeDecoder) {
		if a.Type() == unix.NFTA_RULE_CHAIN {
			rules[a.String()]++
		}
	}); err != nil {
		return false, fmt.Errorf("read the rules of the table %s: %w", k.name, err)
	}
	for chain, number := range want.Rules {
		if rules[chain] != number {
			return false, nil
		}
	}
	for set, number := range want.Elements {
		elements := 0
		err := k.list(socket, unix.NFT_MSG_GETSETELEM, set, func(a *netlink.AttributeDecoder) {
			if a.Type() == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				a.Nested(func(list *netlink.AttributeDecoder) error { elements += count(list); return nil })
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return false, fmt.Errorf("read the set %s of the table %s: %w", set, k.name, err)
		}
		if err != nil || elements != number {
			return false, nil
		}
	}
	return true, nil
}

// count returns the number of elements of a list. The end of a range is an element of its own,
// which does not count.
func count(list *netlink.AttributeDecoder) int {
	number := 0
	for list.Next() {
		number++
		list.Nested(func(element *netlink.AttributeDecoder) error {
			for element.Next() {
				if element.Type() == unix.NFTA_SET_ELEM_FLAGS && element.Uint32()&unix.NFT_SET_ELEM_INTERVAL_END != 0 {
					number--
				}
			}
			return nil
		})
	}
	return number
}

// list lists what the table, or a set of it, has, and calls a function for each attribute.
func (k kernel) list(socket *netlink.Conn, kind netlink.HeaderType, set string, each func(*netlink.AttributeDecoder)) error {
	request := netlink.NewAttributeEncoder()
	request.String(unix.NFTA_RULE_TABLE, k.name) // the same as NFTA_SET_ELEM_LIST_TABLE
	if set != "" {
		request.String(unix.NFTA_SET_ELEM_LIST_SET, set)
	}
	attributes, err := request.Encode()
	if err != nil {
		return err
	}
	replies, err := socket.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | kind, Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{byte(k.family), unix.NFNETLINK_V0, 0, 0}, attributes...), // struct nfgenmsg
	})
	if err != nil {
		return err
	}
	for _, reply := range replies {
		if len(reply.Data) < 4 {
			continue
		}
		attributes, err := netlink.NewAttributeDecoder(reply.Data[4:])
		if err != nil {
			return err
		}
		attributes.ByteOrder = binary.BigEndian
		for attributes.Next() {
			each(attributes)
		}
		if err := attributes.Err(); err != nil {
			return err
		}
	}
	return nil
}
