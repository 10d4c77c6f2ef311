// Package iptables owns how the agent runs iptables and reads its chains.
package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Program returns the program for an IP family, beside the one for IPv4.
func Program(iptables string, v6 bool) string {
	if v6 {
		return filepath.Join(filepath.Dir(iptables), "ip6tables")
	}
	return iptables
}

// Run runs iptables or ip6tables, and returns what it prints. It waits while another process
// holds the lock of the tables.
func Run(ctx context.Context, program string, args ...string) (string, error) {
	args = append([]string{"--wait", "5"}, args...)
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		var message string
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			message, _, _ = strings.Cut(strings.TrimSpace(string(exit.Stderr)), "\n")
		}
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, message)
	}
	return string(out), nil
}

// Chain is a chain of the kernel's hooks, such as FORWARD.
type Chain struct {
	// Policy is ACCEPT or DROP.
	Policy string
	// Rules are the rules as iptables lists them, without comments, such as
	// "-i eth0 -j ACCEPT".
	Rules []string
	// Others are the rules of the table's other chains, by name.
	Others map[string][]string
}

// comment is the comment of a rule.
var comment = regexp.MustCompile(`-m comment --comment ("(\\.|[^"\\])*"|\S+) `)

// WithoutComments returns a rule as iptables lists it, without its comments.
func WithoutComments(rule string) string { return comment.ReplaceAllString(rule, "") }

// Read reads a chain, and, of the table filter, those to which its rules may lead if iptables
// can list them.
// iptables refuses to read a chain, and nothing else, if the chain has rules that only nft
// can list.
func Read(ctx context.Context, program, table, chain string) (Chain, error) {
	out, err := list(ctx, program, table, chain)
	if err != nil {
		return Chain{}, err
	}
	c := Chain{Others: map[string][]string{}}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if policy, ok := strings.CutPrefix(line, "-P "+chain+" "); ok {
			c.Policy = policy
		}
		rule, ok := strings.CutPrefix(line, "-A ")
		if !ok {
			continue
		}
		name, rule, _ := strings.Cut(rule, " ")
		c.Others[name] = append(c.Others[name], WithoutComments(rule))
	}
	c.Rules = c.Others[chain]
	delete(c.Others, chain)
	return c, nil
}

// list lists the rules of the table filter, or of the chain: of no other table do rules refuse
// packets, and that of NAT may be long.
func list(ctx context.Context, program, table, chain string) (string, error) {
	args := []string{"--table", table, "--list-rules"}
	if table == "filter" {
		if out, err := Run(ctx, program, args...); err == nil {
			return out, nil
		}
	}
	return Run(ctx, program, append(args, chain)...)
}

// refusal is a rule that refuses every packet.
var refusal = regexp.MustCompile(`^-j (DROP|REJECT( --reject-with \S+)?)$`)

// Refusal returns the index of the first rule that refuses every packet, or leads every packet
// to a chain with such a rule, or -1. No rule behind it has an effect.
func (c Chain) Refusal() int { return slices.IndexFunc(c.Rules, c.refuses) }

// refuses reports whether a rule refuses every packet that the rules before it let pass.
func (c Chain) refuses(rule string) bool {
	if refusal.MatchString(rule) {
		return true
	}
	name, _ := strings.CutPrefix(rule, "-j ")
	for _, r := range c.Others[name] { // iptables has no loops
		switch {
		case r == "-j ACCEPT", r == "-j RETURN":
			return false
		case c.refuses(r):
			return true
		}
	}
	return false
}
