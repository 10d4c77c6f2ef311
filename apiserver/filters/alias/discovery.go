package alias

import "strings"

const (
	discovery       = "apidiscovery"
	discoveryBeta   = "v2beta1"
	discoveryStable = "v2"
)

// Discovery are the versions of aggregated discovery that the release serves. Their objects
// are the same, and the library serves v2 only: a client gets v2beta1 as v2 under that name.
// What is not served is v2beta1 to the library, which takes it for no media type: it
// goes on to the client's next one, and answers 406 if there is none.
type Discovery struct{ V2Beta1, V2 bool }

// translate returns an Accept header in Kubernetes' spelling with the versions of discovery
// that the library serves for those that the client asks for, and whether the response is
// v2beta1 then. The first of several versions counts, except that v2 goes before v2beta1.
func (d Discovery) translate(header string) (translated string, beta bool) {
	if !strings.Contains(header, "g="+discovery+"."+kubeDomain) {
		return header, false
	}
	clauses := strings.Split(header, ",")
	beta = d.V2Beta1 && hasDiscovery(clauses, discoveryBeta) && !(d.V2 && hasDiscovery(clauses, discoveryStable))
	for i, clause := range clauses {
		switch {
		case beta && isDiscovery(clause, discoveryBeta):
			clauses[i] = replaceParameter(clause, "v=", discoveryBeta, discoveryStable)
		case !d.V2 && isDiscovery(clause, discoveryStable):
			clauses[i] = replaceParameter(clause, "v=", discoveryStable, discoveryBeta)
		}
	}
	return strings.Join(clauses, ","), beta
}

func hasDiscovery(clauses []string, version string) bool {
	for _, clause := range clauses {
		if isDiscovery(clause, version) {
			return true
		}
	}
	return false
}

// isDiscovery reports whether a media type is that of a version of aggregated discovery.
func isDiscovery(clause, version string) bool {
	return hasParameter(clause, "g=", discovery+"."+kubeDomain) && hasParameter(clause, "v=", version)
}
