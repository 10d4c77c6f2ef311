package tlsrule

import (
	"strings"
	"testing"
)

func TestHTTP2NeedsASuiteUpToTLS12(t *testing.T) {
	for _, test := range []struct {
		name    string
		suites  []string
		version string
		refused bool
	}{
		{name: "Go's defaults"},
		{name: "one of the required", suites: []string{"TLS_RSA_WITH_AES_128_CBC_SHA", required[1]}},
		{name: "none of them", suites: []string{"TLS_RSA_WITH_AES_128_CBC_SHA"}, version: "VersionTLS12", refused: true},
		{name: "suites of TLS 1.3 alone", suites: []string{"TLS_AES_128_GCM_SHA256"}, refused: true},
		{name: "TLS 1.3 alone", suites: []string{"TLS_AES_128_GCM_SHA256"}, version: "VersionTLS13"},
	} {
		if got := RefuseSuites(test.suites, test.version); (got != "") != test.refused {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}

func TestAVersionIsOneOfTheFlags(t *testing.T) {
	for _, version := range []string{"", "VersionTLS12", "VersionTLS13"} {
		if got := RefuseVersion(version); got != "" {
			t.Errorf("%q: %s", version, got)
		}
	}
	if got := RefuseVersion("1.3"); !strings.HasPrefix(got, `"1.3": `) || !strings.Contains(got, "VersionTLS13") {
		t.Errorf("the problem is %q", got)
	}
}
