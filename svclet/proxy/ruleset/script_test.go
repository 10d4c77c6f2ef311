//go:build linux

package ruleset_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/knftables"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/internal/golden"
	"svc.dev/svc/svclet/proxy/ruleset"
)

// TestScripts plays the scripts of testdata, for the node "here" in the zone "east" whose pods are in
// 10.244.0.0/24 and fd00:244::/64. The commands:
//
//	table FAMILY BRIDGE   creates the table
//	service               creates or changes the service of the spec, and prints what changes
//	endpoints             sets the endpoints to those of an EndpointSlice, and prints what changes
//	delete                deletes the service
//	rules                 prints the table
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		m := &model{t: t, owners: ruleset.Owners{}}
		return m.do
	})
}

type model struct {
	t       *testing.T
	table   ruleset.Table
	fake    *knftables.Fake
	service ruleset.Service
	part    ruleset.Part
	owners  ruleset.Owners
	choices ruleset.Choices
}

func (m *model) do(c golden.Command) string {
	switch c.Name {
	case "table":
		m.table = ruleset.Table{Family: corev1.IPFamily(c.Args[0]), PodRanges: []string{"10.244.0.0/24", "fd00:244::/64"}}
		family := knftables.IPv4Family
		if m.table.Family == corev1.IPv6Protocol {
			family = knftables.IPv6Family
		}
		if len(c.Args) > 1 {
			m.table.Bridge = c.Args[1]
		}
		m.fake = knftables.NewFake(family, "svc0")
		tx := m.fake.NewTransaction()
		m.choices, _ = m.table.Create(tx)
		m.run(tx)
	case "service":
		m.service.Service = &corev1.Service{}
		if err := yaml.UnmarshalStrict([]byte(c.Body), m.service.Service); err != nil {
			m.t.Fatal(err)
		}
		m.service.Service.Namespace, m.service.Service.Name = "shop", "web"
		return m.change(ruleset.PartOf(m.service, m.table.Family, ruleset.Place{Node: "here", Zone: "east"}))
	case "endpoints":
		slice := &discoveryv1.EndpointSlice{}
		if err := yaml.UnmarshalStrict([]byte(c.Body), slice); err != nil {
			m.t.Fatal(err)
		}
		m.service.Slices = []*discoveryv1.EndpointSlice{slice}
		return m.change(ruleset.PartOf(m.service, m.table.Family, ruleset.Place{Node: "here", Zone: "east"}))
	case "delete":
		return m.change(ruleset.Part{})
	case "rules":
		return m.fake.Dump()
	default:
		m.t.Fatalf("unknown command %q", c.Name)
	}
	return ""
}

// change changes the service's part of the table, and returns the transaction.
func (m *model) change(to ruleset.Part) string {
	tx := m.fake.NewTransaction()
	m.table.Change(tx, m.owners, m.choices, &ruleset.Stale{}, ruleset.Change{Before: m.part, After: to})
	m.part = to
	m.run(tx)
	return strings.NewReplacer(" ip svc0 ", " ", " ip6 svc0 ", " ").Replace(tx.String())
}

func (m *model) run(tx *knftables.Transaction) {
	if err := m.fake.Run(context.Background(), tx); err != nil {
		m.t.Fatalf("%v\n%s", err, tx)
	}
}
