//go:build linux

package ruleset

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/nft"
)

// With session affinity an endpoint keeps its number while it is there. Of each number, and of each
// timeout, a set has the clients of the endpoints of that number, with the keys. A client that is in
// one goes to the endpoint of the number. Another one gets a random number that has an endpoint, and
// is added to its set. It may be in the sets of numbers whose endpoints are gone: when it connects it is
// deleted from those that are lower than that of its endpoint, so that, of the sets that have it, the
// first one is of its endpoint when the other numbers have endpoints again.

const (
	// clients is the prefix of the names of sets of clients.
	clients = "clients-"
	// maxClients is how many clients a set may have: those of an endpoint of each service. More have
	// no affinity. It is the kernel's limit of a set without a size. For one with a size the kernel
	// takes memory for as many when it makes the set, a megabyte here, and a service has a set for
	// each number of its endpoints.
	maxClients = 1<<16 - 1
	// maxName is how long the name of a chain may be. The longest that nft accepts has 127 characters.
	maxName = 120
)

// cut returns a name that is not too long: the hash makes it unique.
func cut(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:10]))
	return name[:maxName-len(hash)-1] + "-" + hash
}

// clients returns the name of the set of the clients of a number.
func (c choice) clients(number int) string {
	return fmt.Sprintf("%s%s-for-%ds-%d", clients, c.of, c.timeout, number)
}

// to returns the name of the chain by which clients stay with the endpoint of a number.
func (c choice) to(number int) string {
	return fmt.Sprintf("%s-for-%ds-%d", c.of, c.timeout, number)
}

// client returns the expression for a packet's source and key.
func (t Table) client(c choice) string {
	return fmt.Sprintf("%s saddr . %s", Protocol(t.Family), t.key(c.of))
}

// addAffinity adds the chain of a choice with session affinity, and those that it leads to.
func (t Table) addAffinity(chains map[string][]string, c choice) {
	var rules, all []string
	for n, digit := range c.numbers {
		if digit == '0' {
			rules = append(rules, fmt.Sprintf("delete @%s { %s }", c.clients(n), t.client(c)))
			continue
		}
		rules = append(rules, fmt.Sprintf("%s @%s goto %s", t.client(c), c.clients(n), c.to(n)))
		all = append(all, fmt.Sprintf("%d : goto %s", len(all), c.to(n)))
		chains[c.to(n)] = slices.Concat(
			[]string{fmt.Sprintf("update @%s { %s }", c.clients(n), t.client(c))},
			t.translate(c.of, "", fmt.Sprintf("numgen random mod 1 offset %d", n)), []string{"drop"})
	}
	choose := fmt.Sprintf("numgen random mod %d vmap { %s }", len(all), strings.Join(all, " , "))
	chains[c.set()] = append(rules, choose)
}

// addClientSets adds the sets of the clients of a choice.
func (t Table) addClientSets(sets map[string]*knftables.Set, c choice) {
	for n := range c.numbers {
		sets[c.clients(n)] = &knftables.Set{
			Name: c.clients(n), Type: t.withSource(c.of), Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag},
			Timeout: ptr.To(time.Duration(c.timeout) * time.Second),
		}
	}
}

// Clients are what a table had of session affinity before it is written again.
type Clients struct {
	family corev1.IPFamily
	// endpoints are the numbers of the endpoints of keys, by sets of keys.
	endpoints map[Key]map[int]string
	sets      map[string][]nft.Member
}

// IsClients reports whether a set has clients, and IsEndpoints whether a map has endpoints.
func IsClients(name string) bool { return strings.HasPrefix(name, clients) }

// IsEndpoints reports whether a map has the endpoints of keys.
func IsEndpoints(name string) bool { return slices.Contains(endpointMaps(), name) }

// NewClients returns those of a table of a family, of the members of its sets of clients and of its
// maps of endpoints.
func NewClients(family corev1.IPFamily, sets, endpoints map[string][]nft.Member) Clients {
	c := Clients{family, map[Key]map[int]string{}, sets}
	for of := range keySets() {
		for _, protocol := range protocols() {
			for _, m := range endpoints[endpointMap(of, protocol)] {
				key, value := nft.Fields(m.Key, append(c.kinds(of), nft.Number)...), nft.Fields(m.Value, c.address(), nft.Port)
				if key == nil || value == nil {
					continue // it was of another release
				}
				number, err := strconv.ParseUint(key[len(key)-1], 10, 16)
				if err != nil {
					continue // no service has so many endpoints
				}
				at := Key{of, strings.Join(key[:len(key)-1], " . ")}
				if c.endpoints[at] == nil {
					c.endpoints[at] = map[int]string{}
				}
				c.endpoints[at][int(number)] = strings.Join(value, " . ")
			}
		}
	}
	return c
}

func (c Clients) address() nft.Kind {
	if c.family == corev1.IPv6Protocol {
		return nft.IPv6
	}
	return nft.IPv4
}

// kinds returns those of the fields of keys of a set.
func (c Clients) kinds(of string) []nft.Kind {
	if of == nodePorts || of == localNodePorts {
		return []nft.Kind{nft.Protocol, nft.Port}
	}
	return []nft.Kind{c.address(), nft.Protocol, nft.Port}
}

// Number gives the endpoints of new parts the numbers that they had.
func (c Clients) Number(changes []Change) {
	for _, change := range changes {
		for key, e := range change.After.Elements {
			if e.Timeout == 0 {
				continue
			}
			e.Endpoints = keepNumbers(c.numbered(key), e.Endpoints)
			e.LocalEndpoints = keepNumbers(c.numbered(Key{localOf(key.Map), key.Fields}), e.LocalEndpoints)
			change.After.Elements[key] = e
		}
	}
}

// numbered returns the endpoints of a key by their numbers.
func (c Clients) numbered(k Key) []string {
	numbers := c.endpoints[k]
	if len(numbers) == 0 {
		return nil
	}
	endpoints := make([]string, slices.Max(slices.Collect(maps.Keys(numbers)))+1)
	for n, e := range numbers {
		endpoints[n] = e
	}
	return endpoints
}

// Restore adds to a transaction that has created the table the clients that its sets had.
func (c Clients) Restore(tx *knftables.Transaction, choices Choices) {
	restored := map[string]bool{}
	for choice := range choices {
		for n := range choice.numbers {
			if name := choice.clients(n); !restored[name] {
				restored[name] = true
				c.restore(tx, name, choice.of)
			}
		}
	}
}

func (c Clients) restore(tx *knftables.Transaction, name, of string) {
	room := maxClients
	for _, m := range c.sets[name] {
		client, left := nft.Fields(m.Key, append([]nft.Kind{c.address()}, c.kinds(of)...)...), int64(m.Expires/time.Second)
		if client != nil && left > 0 && room > 0 {
			room--
			client[len(client)-1] += fmt.Sprintf(" expires %ds", left)
			tx.Add(&knftables.Element{Set: name, Key: client})
		}
	}
}
