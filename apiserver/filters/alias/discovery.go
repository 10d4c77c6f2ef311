package alias

import "strings"

// Aggregated discovery has the version v2beta1 in release 1.28. Its objects are
// those of v2, the only version that the library still serves: a client that asks
// for v2beta1 alone gets v2 under that name.
const (
	discovery       = "apidiscovery"
	discoveryBeta   = "v2beta1"
	discoveryStable = "v2"
)

// asksForBetaDiscovery reports whether an Accept header in Kubernetes' spelling
// asks for aggregated discovery in v2beta1, and not in v2.
func asksForBetaDiscovery(header string) bool {
	return strings.Contains(header, "g="+discovery+"."+kubeDomain) &&
		hasParameter(header, "v=", discoveryBeta) && !hasParameter(header, "v=", discoveryStable)
}
