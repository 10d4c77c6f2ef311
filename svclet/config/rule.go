package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"svc.dev/svc/svclet/container"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"svc.dev/svc/internal/suggest"
)

// Rule is the validation rule of a setting.
type Rule struct {
	// Takes describes the valid values: "from 1 to 65535".
	Takes string
	// refuse returns why a value is invalid, or "". Numbers are int64; text, lists and
	// maps are unchanged.
	refuse func(value any) string
}

func from(low, high int64) *Rule {
	takes := fmt.Sprintf("from %d to %d", low, high)
	if high == math.MaxInt64 {
		takes = fmt.Sprintf("%d or more", low)
	}
	return &Rule{takes, func(value any) string {
		if n := value.(int64); n < low || n > high {
			return "must be " + takes
		}
		return ""
	}}
}

func atLeast(low int64) *Rule { return from(low, math.MaxInt64) }

// multipleOf accepts positive multiples of unit up to high.
func multipleOf(unit, high int64) *Rule {
	takes := fmt.Sprintf("a multiple of %d, up to %d", unit, high)
	return &Rule{takes, func(value any) string {
		if n := value.(int64); n <= 0 || n > high || n%unit != 0 {
			return "must be " + takes
		}
		return ""
	}}
}

// memoryReservations accepts amounts of memory and huge pages of NUMA nodes, each once.
func memoryReservations() *Rule {
	return &Rule{"", func(value any) string {
		seen := map[string]bool{}
		for _, r := range value.([]kubeletconfig.MemoryReservation) {
			if r.NumaNode < 0 || len(r.Limits) == 0 {
				return fmt.Sprintf("must have a NUMA node from 0 and an amount: has node %d and %d amounts", r.NumaNode, len(r.Limits))
			}
			for name, q := range r.Limits {
				at := fmt.Sprintf("%s of NUMA node %d", name, r.NumaNode)
				switch {
				case name != corev1.ResourceMemory && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
					return fmt.Sprintf("must be of memory or %sSIZE: has %s", corev1.ResourceHugePagesPrefix, at)
				case q.Sign() <= 0:
					return fmt.Sprintf("must be more than 0: has %s %s", q.String(), at)
				case seen[at]:
					return "must have each resource once: has twice " + at
				}
				seen[at] = true
			}
		}
		return ""
	}}
}

func durationRule(low, high time.Duration, takes string) *Rule {
	return &Rule{takes, func(value any) string {
		if d := value.(time.Duration); d < low || d > high {
			return "must be " + takes
		}
		return ""
	}}
}

func positive() *Rule    { return durationRule(1, math.MaxInt64, "above 0") }
func notNegative() *Rule { return durationRule(0, math.MaxInt64, "0 or more") }

// oneOf accepts one of these words.
func oneOf(words ...string) *Rule {
	takes := alternatives(words)
	return &Rule{takes, func(value any) string {
		if !slices.Contains(words, value.(string)) {
			return "must be " + takes
		}
		return ""
	}}
}

// alternatives returns words joined for a sentence; an empty word is named.
func alternatives(words []string) string {
	words = slices.Clone(words)
	for i, word := range words {
		if word == "" {
			words[i] = "empty"
		}
	}
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// text accepts an empty text, or one that right accepts.
func text(takes string, right func(string) bool) *Rule {
	return &Rule{takes, func(value any) string {
		if s := value.(string); s != "" && !right(s) {
			return "must be " + takes
		}
		return ""
	}}
}

func isIP(s string) bool { return net.ParseIP(s) != nil }

func ip() *Rule {
	return &Rule{"an IP address", func(value any) string {
		if !isIP(value.(string)) {
			return "must be an IP address"
		}
		return ""
	}}
}

func ips() *Rule {
	return each("IP addresses", func(s string) string {
		if !isIP(s) {
			return "is not an IP address"
		}
		return ""
	})
}

// each is a rule for the elements of a list.
func each(takes string, refuse func(string) string) *Rule {
	return &Rule{takes, func(value any) string {
		for _, element := range value.([]string) {
			if problem := refuse(element); problem != "" {
				return fmt.Sprintf("%q %s", element, problem)
			}
		}
		return ""
	}}
}

func cipherSuites() *Rule {
	known := cliflag.TLSCipherPossibleValues()
	return each("names of cipher suites", func(s string) string {
		if slices.Contains(known, s) {
			return ""
		}
		if similar := suggest.Closest(s, known); similar != "" {
			return "is not a supported cipher suite; did you mean " + similar + "?"
		}
		return "is not a supported cipher suite; svclet --help lists them"
	})
}

// keyExchanges is the rule for tlsCurvePreferences.
func keyExchanges() *Rule {
	const takes = "different numbers of key exchanges, as Go's crypto/tls has them: 29 for X25519, 4588 for X25519MLKEM768"
	return &Rule{takes, func(value any) string {
		if _, err := cliflag.TLSCurvePreferences(value.([]int32)); err != nil {
			return err.Error() + "; must be " + takes
		}
		return ""
	}}
}

func absolute(takes string) *Rule { return text(takes, filepath.IsAbs) }

// belowRoot accepts absolute paths other than /.
func belowRoot(takes string) *Rule {
	return text(takes, func(s string) bool { return filepath.IsAbs(s) && filepath.Clean(s) != "/" })
}

// cleanDirectory is the rule for podLogsDir, whose name is used in metrics.
func cleanDirectory() *Rule {
	const takes = "an absolute path other than /, of ASCII letters without .. and double slashes"
	return &Rule{takes, func(value any) string {
		s := value.(string)
		ascii := !strings.ContainsFunc(s, func(r rune) bool { return r > 127 })
		if !filepath.IsAbs(s) || filepath.Clean(s) != strings.TrimSuffix(s, "/") || !ascii {
			return "must be " + takes
		}
		return ""
	}}
}

func endpoint() *Rule {
	const takes = "the path of a socket, as unix:///run/containerd/containerd.sock"
	return &Rule{takes, func(value any) string {
		s := value.(string)
		if s == "" || filepath.IsAbs(s) {
			return ""
		}
		if u, err := url.Parse(s); err != nil || u.Scheme != "unix" || !filepath.IsAbs(u.Path) {
			return "must be " + takes
		}
		return ""
	}}
}

func webURL() *Rule {
	return text("a URL that begins with http:// or https://", func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
	})
}

func cidrs() *Rule {
	return text("a range of addresses, as 10.1.0.0/24, or one of each family", func(s string) bool {
		for part := range strings.SplitSeq(s, ",") {
			if _, err := netip.ParsePrefix(part); err != nil {
				return false
			}
		}
		return true
	})
}

func nodeIPs() *Rule {
	return text("an IP address, or one of each family", func(s string) bool {
		parts := strings.Split(s, ",")
		if len(parts) > 2 {
			return false
		}
		families := map[bool]bool{}
		for _, part := range parts {
			address, err := netip.ParseAddr(strings.TrimSpace(part))
			if err != nil || families[address.Is4()] {
				return false
			}
			families[address.Is4()] = true
		}
		return true
	})
}

func nodeName() *Rule {
	return text("a DNS name in lower case, as node-1.example.org", func(s string) bool {
		return len(validation.IsDNS1123Subdomain(strings.ToLower(strings.TrimSpace(s)))) == 0
	})
}

func cpuList() *Rule {
	return text("a list of CPUs, as 0-1,4", func(s string) bool {
		set, err := cpuset.Parse(s)
		return err == nil && set.Size() > 0
	})
}

func quantity() *Rule {
	const takes = "a quantity of bytes, as 10Mi"
	return &Rule{takes, func(value any) string {
		if _, err := resource.ParseQuantity(value.(string)); err != nil {
			return "must be " + takes
		}
		return ""
	}}
}

// logSize is the rule for --container-log-max-size. The largest is that of a file.
func logSize() *Rule {
	size, largest := quantity(), resource.NewQuantity(math.MaxInt64, resource.BinarySI)
	return &Rule{size.Takes, func(value any) string {
		if problem := size.refuse(value); problem != "" {
			return problem
		}
		switch q := resource.MustParse(value.(string)); {
		case q.IsZero():
			return "must not be 0; a negative value means no limit"
		case q.Cmp(*largest) > 0:
			return "is larger than any file; a negative value means no limit"
		}
		return ""
	}}
}

// percentages is the rule for --qos-reserved.
func percentages() *Rule {
	const takes = "memory=PERCENT%, from 0% to 100%"
	return &Rule{takes, func(value any) string {
		for name, text := range sorted(value.(map[string]string)) {
			number, isPercentage := strings.CutSuffix(text, "%")
			percentage, err := strconv.Atoi(number)
			switch {
			case name != "memory":
				return fmt.Sprintf("%s cannot be reserved by class: only memory can", name)
			case !isPercentage || err != nil || percentage < 0 || percentage > 100:
				return fmt.Sprintf("%s=%s is not %s", name, text, takes)
			}
		}
		return ""
	}}
}

// reservations is the rule for --svc-reserved and --system-reserved.
func reservations() *Rule {
	kinds := []string{"cpu", "memory", "ephemeral-storage", "pid"}
	return &Rule{"quantities of cpu, memory, ephemeral-storage and pid", func(value any) string {
		for name, amount := range sorted(value.(map[string]string)) {
			q, err := resource.ParseQuantity(amount)
			switch {
			case !slices.Contains(kinds, name):
				return fmt.Sprintf("%s cannot be reserved: only %s can", name, strings.Join(kinds, ", "))
			case err != nil:
				return fmt.Sprintf("%s=%s is not a quantity, such as 100m or 1Gi", name, amount)
			case q.Sign() < 0:
				return fmt.Sprintf("%s=%s is negative", name, amount)
			}
		}
		return ""
	}}
}

// namespacedSysctls accepts sysctls of namespaces that pods can have of their own.
func namespacedSysctls() *Rule {
	return &Rule{"", func(value any) string {
		for name := range sorted(value.(map[string]string)) {
			if !container.SysctlNamespaced(name) {
				return fmt.Sprintf("%q is not of a namespace of pods: must be of kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, net.*, kernel.domainname or user.*", name)
			}
		}
		return ""
	}}
}
