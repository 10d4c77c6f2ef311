package node

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// firewall is the rules of iptables of another program, in a network namespace.
type firewall struct{ namespace string }

// loadFirewall loads the rules of a file in testdata, and then those that the user adds.
func loadFirewall(ctx context.Context, namespace, file string, user ...string) firewall {
	GinkgoHelper()
	f := firewall{namespace}
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	f.run(ctx, string(content), "iptables-restore")
	for _, rule := range user {
		f.run(ctx, "", append([]string{"iptables"}, strings.Fields(rule)...)...)
	}
	return f
}

func (f firewall) run(ctx context.Context, stdin string, words ...string) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=/run/netns/" + f.namespace}, words...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%v: %s", words, out)
	return string(out)
}

// counters are the packets and bytes of a chain.
var counters = regexp.MustCompile(` \[\d+:\d+\]$`)

// rules returns the rules and chains in order, without those of empty tables.
func (f firewall) rules(ctx context.Context) []string {
	GinkgoHelper()
	var all []string
	for line := range strings.Lines(f.run(ctx, "", "iptables-save")) {
		line = strings.TrimSpace(counters.ReplaceAllString(strings.TrimSpace(line), ""))
		if strings.HasPrefix(line, "-A ") || strings.HasPrefix(line, ":") && !strings.HasSuffix(line, " ACCEPT") {
			all = append(all, line)
		}
	}
	return all
}
