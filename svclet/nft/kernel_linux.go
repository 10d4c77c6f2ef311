package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// kernel is access to the kernel's tables of a family with a name.
type kernel struct {
	knftables.Interface
	family nftables.TableFamily
	name   string
}

// Tables returns access to the kernel's tables of a family with a name.
func Tables(family knftables.Family, name string) (knftables.Interface, error) {
	var kernelName unix.Utsname
	if err := unix.Uname(&kernelName); err != nil {
		return nil, fmt.Errorf("read the release of the kernel: %w", err)
	}
	if err := checkKernel(unix.ByteSliceToString(kernelName.Release[:])); err != nil {
		return nil, err
	}
	tables, err := knftables.New(family, name)
	if err != nil {
		return nil, err
	}
	return kernel{tables, kernelFamilies()[family], name}, nil
}

// kernelFamilies are the kernel's names of those that have tables.
func kernelFamilies() map[knftables.Family]nftables.TableFamily {
	return map[knftables.Family]nftables.TableFamily{
		knftables.IPv4Family: nftables.TableFamilyIPv4, knftables.IPv6Family: nftables.TableFamilyIPv6, knftables.BridgeFamily: nftables.TableFamilyBridge,
	}
}

// dial returns access to nftables. Each response is awaited for readTimeout.
func dial(options ...nftables.ConnOption) (*nftables.Conn, error) {
	return nftables.New(append(options, nftables.WithSockOptions(limitReads(readTimeout)))...)
}

// Generation returns a number of the kernel's that each change of any table increases.
func Generation() (uint32, error) {
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return 0, fmt.Errorf("open a socket of netfilter: %w", err)
	}
	defer socket.Close()
	if err := limitReads(readTimeout)(socket); err != nil {
		return 0, err
	}
	// The request and the response begin with a header of four bytes (struct nfgenmsg).
	replies, err := socket.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return 0, fmt.Errorf("read the generation of nftables: %w", err)
	}
	for _, reply := range replies {
		if len(reply.Data) < 4 {
			continue
		}
		attributes, err := netlink.NewAttributeDecoder(reply.Data[4:])
		if err != nil {
			return 0, fmt.Errorf("decode the generation of nftables: %w", err)
		}
		attributes.ByteOrder = binary.BigEndian
		for attributes.Next() {
			if attributes.Type() == unix.NFTA_GEN_ID {
				return attributes.Uint32(), attributes.Err()
			}
		}
	}
	return 0, errors.New("the kernel's response has no generation of nftables")
}

// exists asks for the table only: nft would list all that it has, which takes seconds with
// thousands of services.
func (k kernel) exists(context.Context) (bool, error) {
	c, err := dial()
	if err != nil {
		return false, err
	}
	table, err := c.ListTableOfFamily(k.name, k.family)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the table %s: %w", k.name, err)
	}
	return table.Use > 0, nil
}

// countRules returns the number of rules of a chain; 0 if it is missing.
func (k kernel) countRules(chain string) (int, error) {
	c, err := dial()
	if err != nil {
		return 0, err
	}
	rules, err := c.GetRules(&nftables.Table{Name: k.name, Family: k.family}, &nftables.Chain{Name: chain})
	if err != nil {
		return 0, fmt.Errorf("read the rules of the chain %s of the table %s: %w", chain, k.name, err)
	}
	return len(rules), nil
}

// members reads the sets and maps whose names are wanted. With an error it returns those before it.
func (k kernel) members(ctx context.Context, wanted func(name string) bool) (map[string][]Member, error) {
	if there, err := k.exists(ctx); !there {
		return nil, err
	}
	// A socket for each set would take a millisecond. All sets are awaited for readTimeout.
	c, err := dial(nftables.AsLasting())
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.CloseLasting() }() // it was read only
	sets, err := c.GetSets(&nftables.Table{Name: k.name, Family: k.family})
	if err != nil {
		return nil, fmt.Errorf("list the sets of the table %s: %w", k.name, err)
	}
	found := map[string][]Member{}
	for _, set := range sets {
		if !wanted(set.Name) {
			continue
		}
		elements, err := c.GetSetElements(set)
		if err != nil {
			return found, fmt.Errorf("read the set %s of the table %s: %w", set.Name, k.name, err)
		}
		for _, e := range elements {
			found[set.Name] = append(found[set.Name], Member{e.Key, e.Val, e.Expires})
		}
	}
	return found, nil
}

// Remove removes the tables of all families of [Tables] with a name. It does not need the program nft,
// which may be what has kept an agent from changing them.
func Remove(name string) error {
	c, err := dial()
	if err != nil {
		return err
	}
	tables, err := list(c)
	if err != nil {
		return err
	}
	ours := slices.Collect(maps.Values(kernelFamilies()))
	for _, t := range tables {
		if t.Name != name || !slices.Contains(ours, t.Family) {
			continue
		}
		c.DelTable(t)
		if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) { // it was removed meanwhile
			return fmt.Errorf("remove the table %s: %w", name, err)
		}
	}
	return nil
}

// list returns all tables of the kernel; none if it has no nftables.
func list(c *nftables.Conn) ([]*nftables.Table, error) {
	tables, err := c.ListTables()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil // a kernel without nftables
	}
	if err != nil {
		return nil, fmt.Errorf("list tables of nftables: %w", err)
	}
	return tables, nil
}

// Names returns the names of all tables of the kernel; none if it has no nftables.
func Names() ([]string, error) {
	c, err := dial()
	if err != nil {
		return nil, err
	}
	tables, err := list(c)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range tables {
		names = append(names, t.Name)
	}
	return names, nil
}
