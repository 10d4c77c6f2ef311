package ruleset_test

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"
)

// evaluator decides about connections by the rules of a table, as the kernel would. It
// understands the rules that this package writes, and fails the test on others. The table
// must not change while it is in use.
type evaluator struct {
	t *testing.T
	// chains are the parsed rules of each chain.
	chains map[string][]rule
	// maps are the elements of the table's maps, sets those of its sets, by their key.
	maps map[string]map[string]string
	sets map[string]map[string]bool
}

// rule is a rule's matches, all of which must hold for its verdict. A rule that looks its
// verdict up in a map has a last match without operand, and the name of the map instead.
type rule struct {
	matches []match
	lookup  string
	verdict string
}

type match struct {
	field   string
	not     bool
	operand string
}

func newEvaluator(t *testing.T, table *knftables.FakeTable) *evaluator {
	t.Helper()
	e := &evaluator{t, map[string][]rule{}, map[string]map[string]string{}, map[string]map[string]bool{}}
	for name, chain := range table.Chains {
		for _, r := range chain.Rules {
			e.chains[name] = append(e.chains[name], parseRule(r.Rule))
		}
	}
	for name, m := range table.Maps {
		e.maps[name] = map[string]string{}
		for _, element := range m.Elements {
			e.maps[name][strings.Join(element.Key, " . ")] = element.Value[0]
		}
	}
	for name, set := range table.Sets {
		e.sets[name] = map[string]bool{}
		for _, element := range set.Elements {
			e.sets[name][strings.Join(element.Key, " . ")] = true
		}
	}
	return e
}

func parseRule(text string) rule {
	var parsed rule
	rest := text
	for rest != "" {
		var field string
		for _, known := range []string{
			"ct state ", "icmpv6 type ", "ip saddr . ip daddr ", "ip6 saddr . ip6 daddr ", "ip daddr . tcp dport ", "ip daddr . udp dport ", "ip daddr . sctp dport ",
			"ip6 daddr . tcp dport ", "ip6 daddr . udp dport ", "ip6 daddr . sctp dport ", "ip saddr ", "ip daddr ", "ip6 saddr ", "ip6 daddr ",
			"tcp dport ", "udp dport ", "sctp dport ", "meta l4proto ",
		} {
			if after, found := strings.CutPrefix(rest, known); found {
				field, rest = strings.TrimSpace(known), after
				break
			}
		}
		if field == "" {
			parsed.verdict = strings.TrimPrefix(rest, "counter ")
			return parsed
		}
		m := match{field: field}
		if name, found := strings.CutPrefix(rest, "vmap @"); found {
			parsed.matches, parsed.lookup = append(parsed.matches, m), name
			return parsed
		}
		rest = strings.TrimSpace(rest)
		if after, found := strings.CutPrefix(rest, "!= "); found {
			m.not, rest = true, after
		}
		if strings.HasPrefix(rest, "{") {
			end := strings.Index(rest, "}") + 1
			m.operand, rest = rest[:end], strings.TrimSpace(rest[end:])
		} else {
			m.operand, rest, _ = strings.Cut(rest, " ")
		}
		parsed.matches = append(parsed.matches, m)
	}
	return parsed
}

// allows reports whether the rules let the first packet of a connection pass.
func (e *evaluator) allows(c connection) bool {
	e.t.Helper()
	return packet{e, c, c.from.address.String(), c.to.address.String()}.chain("forward") != "drop"
}

// packet is the first one of a connection, with the text of its addresses.
type packet struct {
	*evaluator
	connection
	source, destination string
}

// chain returns the verdict of a chain: accept, drop, or "" at its end.
func (e packet) chain(name string) string {
	for _, rule := range e.chains[name] {
		switch verdict := e.rule(rule); {
		case verdict == "return":
			return ""
		case strings.HasPrefix(verdict, "jump "):
			if of := e.chain(strings.TrimPrefix(verdict, "jump ")); of != "" {
				return of
			}
		case verdict != "":
			return verdict
		}
	}
	return ""
}

// rule returns the verdict of a rule, "" if it does not match.
func (e packet) rule(r rule) string {
	for _, m := range r.matches {
		value, applies := e.value(m.field)
		if m.operand == "" {
			return e.maps[r.lookup][value]
		}
		if !applies || e.in(value, m.operand) == m.not {
			return ""
		}
	}
	if r.verdict == "" {
		e.t.Fatalf("a rule without verdict: %+v", r)
	}
	return r.verdict
}

// value returns the value of a field; applies is false if the packet does not have it.
func (e packet) value(field string) (value string, applies bool) {
	var values []string
	for part := range strings.SplitSeq(field, " . ") {
		switch part {
		case "ct state":
			return "new", true
		case "icmpv6 type":
			return "echo-request", e.protocol == "ICMP"
		case "ip saddr", "ip6 saddr":
			values = append(values, e.source)
		case "ip daddr", "ip6 daddr":
			values = append(values, e.destination)
		case "meta l4proto":
			values = append(values, strings.ToLower(string(e.protocol)))
		case "tcp dport", "udp dport", "sctp dport":
			if !strings.HasPrefix(part, strings.ToLower(string(e.protocol))) {
				return "", false
			}
			values = append(values, strconv.Itoa(int(e.port)))
		default:
			e.t.Fatalf("unknown field %q", part)
		}
	}
	return strings.Join(values, " . "), true
}

// in reports whether a value is in an operand: a value, an interval, a block, a set or
// the name of one.
func (e packet) in(value, operand string) bool {
	if name, found := strings.CutPrefix(operand, "@"); found {
		return e.sets[name][value]
	}
	for one := range strings.SplitSeq(strings.Trim(operand, "{ }"), ",") {
		one = strings.TrimSpace(one)
		if one == value {
			return true
		}
		if block, err := netip.ParsePrefix(one); err == nil && block.Contains(netip.MustParseAddr(value)) {
			return true
		}
		if first, last, found := strings.Cut(one, "-"); found {
			low, err := strconv.Atoi(first)
			high, err2 := strconv.Atoi(last)
			number, err3 := strconv.Atoi(value)
			if err == nil && err2 == nil && err3 == nil && number >= low && number <= high {
				return true
			}
		}
	}
	return false
}
