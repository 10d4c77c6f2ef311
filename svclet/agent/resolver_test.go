package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"svc.dev/svc/svclet/config"
)

func TestAResolverConfigurationThatPodsCannotHaveIsAnEventOfTheNode(t *testing.T) {
	dir := t.TempDir()
	good, long := filepath.Join(dir, "good"), filepath.Join(dir, "long")
	for file, content := range map[string]string{good: "search example.com", long: "search" + strings.Repeat(" example.com", 30)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string][]string{
		"": nil, good: nil,
		long: {"Warning CheckLimitsForResolvConf: Resolv.conf file '" + long + "' contains search line consisting of more than 29 domains!"},
	} {
		base := common{Config: Config{Configuration: config.Default()}}
		base.Configuration.ResolverConfig, base.Configuration.ClusterDomain = &file, "cluster.local"
		var events []string
		for _, part := range checkResolver(base, func(kind, reason, message string) { events = append(events, kind+" "+reason+": "+message) }).parts {
			part(t.Context())
		}
		if !slices.Equal(events, want) {
			t.Errorf("%q: events %q, want %q", file, events, want)
		}
	}
}
