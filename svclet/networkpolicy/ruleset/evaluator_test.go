package ruleset_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"
)

// evaluate reports whether the rules of a table let the first packet of a connection
// pass. It understands the rules that this package writes, and fails the test on others.
func evaluate(t *testing.T, table *knftables.FakeTable, c connection) bool {
	t.Helper()
	e := evaluator{t, table, c}
	return e.chain("forward") != "drop"
}

type evaluator struct {
	t     *testing.T
	table *knftables.FakeTable
	connection
}

// chain returns the verdict of a chain: accept, drop, or "" at its end.
func (e evaluator) chain(name string) string {
	for _, rule := range e.table.Chains[name].Rules {
		switch verdict := e.rule(rule.Rule); {
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
func (e evaluator) rule(text string) string {
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
			return strings.TrimPrefix(rest, "counter ") // the verdict
		}
		value, applies := e.value(field)
		if name, found := strings.CutPrefix(rest, "vmap @"); found {
			for _, element := range e.table.Maps[name].Elements {
				if strings.Join(element.Key, " . ") == value {
					return element.Value[0]
				}
			}
			return ""
		}
		rest = strings.TrimSpace(rest)
		not := false
		if after, found := strings.CutPrefix(rest, "!= "); found {
			not, rest = true, after
		}
		var operand string
		if strings.HasPrefix(rest, "{") {
			end := strings.Index(rest, "}") + 1
			operand, rest = rest[:end], strings.TrimSpace(rest[end:])
		} else {
			operand, rest, _ = strings.Cut(rest, " ")
		}
		if !applies || e.in(value, operand) == not {
			return ""
		}
	}
	e.t.Fatalf("a rule without verdict: %s", text)
	return ""
}

// value returns the value of a field; applies is false if the packet does not have it.
func (e evaluator) value(field string) (value string, applies bool) {
	var values []string
	for part := range strings.SplitSeq(field, " . ") {
		switch part {
		case "ct state":
			return "new", true
		case "icmpv6 type":
			return "echo-request", e.protocol == "ICMP"
		case "ip saddr", "ip6 saddr":
			values = append(values, e.from.address.String())
		case "ip daddr", "ip6 daddr":
			values = append(values, e.to.address.String())
		case "meta l4proto":
			values = append(values, strings.ToLower(string(e.protocol)))
		case "tcp dport", "udp dport", "sctp dport":
			if !strings.HasPrefix(part, strings.ToLower(string(e.protocol))) {
				return "", false
			}
			values = append(values, fmt.Sprint(e.port))
		default:
			e.t.Fatalf("unknown field %q", part)
		}
	}
	return strings.Join(values, " . "), true
}

// in reports whether a value is in an operand: a value, an interval, a block, a set or
// the name of one.
func (e evaluator) in(value, operand string) bool {
	if name, found := strings.CutPrefix(operand, "@"); found {
		for _, element := range e.table.Sets[name].Elements {
			if strings.Join(element.Key, " . ") == value {
				return true
			}
		}
		return false
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
