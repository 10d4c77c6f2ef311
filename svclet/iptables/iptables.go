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
}

// comment is the comment of a rule.
var comment = regexp.MustCompile(`-m comment --comment ("(\\.|[^"\\])*"|\S+) `)

// WithoutComments returns a rule as iptables lists it, without its comments.
func WithoutComments(rule string) string { return comment.ReplaceAllString(rule, "") }

// Read reads a chain. iptables refuses that, and nothing else, if the chain has rules that
// only nft can list.
func Read(ctx context.Context, program, table, chain string) (Chain, error) {
	out, err := Run(ctx, program, "--table", table, "--list-rules", chain)
	if err != nil {
		return Chain{}, err
	}
	var c Chain
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if policy, ok := strings.CutPrefix(line, "-P "+chain+" "); ok {
			c.Policy = policy
		} else if rule, ok := strings.CutPrefix(line, "-A "+chain+" "); ok {
			c.Rules = append(c.Rules, WithoutComments(rule))
		}
	}
	return c, nil
}

// refusal is a rule that refuses every packet.
var refusal = regexp.MustCompile(`^-j (DROP|REJECT( --reject-with \S+)?)$`)

// Refusal returns the index of the first rule that refuses every packet, or -1. No rule
// behind it has an effect.
func (c Chain) Refusal() int { return slices.IndexFunc(c.Rules, refusal.MatchString) }
