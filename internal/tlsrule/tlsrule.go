// Package tlsrule owns the rules for cipher suites and versions of TLS that every server of svc applies.
package tlsrule

import (
	"fmt"
	"slices"
	"strings"

	cliflag "k8s.io/component-base/cli/flag"
)

// required are the suites of which HTTP/2 with TLS 1.2 needs one (RFC 9113 section
// 9.2.2 and what crypto/tls has of them).
var required = [...]string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}

// RefuseSuites returns why a server cannot serve HTTP/2 with these cipher suites and
// this minimum version of TLS, as their flags have them, or "". Suites of TLS 1.3
// cannot be chosen: it has its own.
func RefuseSuites(suites []string, minVersion string) string {
	if len(suites) == 0 || minVersion == "VersionTLS13" {
		return ""
	}
	for _, suite := range required {
		if slices.Contains(suites, suite) {
			return ""
		}
	}
	return "must have " + required[0] + " or " + required[1] + ", which HTTP/2 needs, unless the minimum version of TLS is VersionTLS13"
}

// RefuseVersion returns why a version, as --tls-min-version has it, is invalid, or "".
func RefuseVersion(version string) string {
	if _, err := cliflag.TLSVersion(version); err != nil {
		return fmt.Sprintf("%q: choose from %s", version, strings.Join(cliflag.TLSPossibleVersions(), ", "))
	}
	return ""
}
