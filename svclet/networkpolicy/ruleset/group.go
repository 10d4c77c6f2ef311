package ruleset

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// family is an IP family: the index of its table.
type family int

const (
	v4 family = iota
	v6
	families
)

func familyOf(address netip.Addr) family {
	if address.Is6() {
		return v6
	}
	return v4
}

// ip returns nft's name of the family in expressions.
func (f family) ip() string { return [families]string{"ip", "ip6"}[f] }

// addressType returns nft's type of the family's addresses.
func (f family) addressType() string { return [families]string{"ipv4_addr", "ipv6_addr"}[f] }

// element is an element of a group's set in the table of a family.
type element struct {
	family family
	key    string // fields are separated by " . "
}

// group describes sets, one in the table of each family, whose elements come from pods:
// the addresses of the pods that a peer selects, or the addresses and numbers of a port
// by its name.
type group struct {
	name, comment string
	// suffix follows the type of an address in the type of the set.
	suffix string
	// elements returns those of a pod, whose namespace has the labels; nil labels mean
	// that the namespace is not known.
	elements func(p Pod, namespace labels.Set) []element
}

// selected returns the group of the pods that a peer selects. A nil selector of
// namespaces means the namespace.
func selected(namespace string, namespaces, pods labels.Selector) group {
	key, where, suffix := "\x00"+text(pods), "in namespace "+namespace, "-"+namespace
	if namespaces == nil {
		key = namespace + key
	} else {
		key, where, suffix = "\x00"+text(namespaces)+key, "in "+describe("namespaces", namespaces), ""
	}
	return group{
		name: unique("peers", key, suffix), comment: cut(describe("pods", pods)+" "+where, maxComment),
		elements: func(p Pod, labels labels.Set) []element {
			switch {
			case namespaces == nil && p.Namespace != namespace,
				namespaces != nil && (labels == nil || !namespaces.Matches(labels)),
				!pods.Matches(p.Labels):
				return nil
			}
			all := make([]element, len(p.Addresses))
			for i, address := range p.Addresses {
				all[i] = element{familyOf(address), address.String()}
			}
			return all
		},
	}
}

// nothing is the text of the selector of nothing, which no other selector has: a requirement
// has a key.
const nothing = "!"

// text returns a selector as text. Those of everything and of nothing have the same String.
func text(s labels.Selector) string {
	if _, selectable := s.Requirements(); !selectable {
		return nothing
	}
	return s.String()
}

// describe says of which objects of a kind a selector selects.
func describe(kind string, s labels.Selector) string {
	switch text(s) {
	case "":
		return "all " + kind
	case nothing:
		return "no " + kind
	}
	return kind + " " + s.String()
}

// named returns the group of a port's name: where the port is, in each pod that has it.
func named(protocol corev1.Protocol, name string) group {
	return group{
		name: "port-" + lower(protocol) + "-" + name, comment: fmt.Sprintf("port %s of pods, %s", name, protocol), suffix: " . inet_service",
		elements: func(p Pod, _ labels.Set) []element {
			var all []element
			for _, port := range p.Ports {
				if port.Name != name || port.Protocol != protocol {
					continue
				}
				for _, address := range p.Addresses {
					all = append(all, element{familyOf(address), fmt.Sprintf("%s . %d", address, port.Number)})
				}
			}
			return all
		},
	}
}

// members are the elements of a group that pods have at the moment.
type members struct {
	group
	of map[types.UID][]element
	// count is the number of pods with an element: an address may briefly be that of
	// two, one of which has ended.
	count map[element]int
}

func lower(protocol corev1.Protocol) string { return strings.ToLower(string(protocol)) }

const (
	// maxName and maxComment are shorter than what nft accepts.
	maxName    = 120
	maxComment = 120
)

func cut(text string, length int) string { return text[:min(len(text), length)] }

// hashSize is how many bytes of a key's hash are in a name. The authors of policies choose the
// keys of peers: with two keys of the same hash, one of them would add its pods to the peers of
// another's policy.
const hashSize = 16

// unique returns a name with the hash of a key, so that it is unique when it is cut.
func unique(kind, key, rest string) string {
	sum := sha256.Sum256([]byte(key))
	hash := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:hashSize])
	return cut(kind+"-"+strings.ToLower(hash)+rest, maxName)
}
