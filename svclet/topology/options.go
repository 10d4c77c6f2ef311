package topology

import (
	"fmt"
	"strconv"
)

// preferClosest is the option of --topology-manager-policy-options (beta).
const preferClosest = "prefer-closest-numa-nodes"

// ParseOptions parses --topology-manager-policy-options, and returns [Merger.Closest].
// beta reports whether options in beta are allowed (TopologyManagerPolicyBetaOptions).
func ParseOptions(given map[string]string, beta bool) (closest bool, err error) {
	for name, value := range given {
		switch {
		case name != preferClosest:
			return false, fmt.Errorf("unsupported option %q: must be %s", name, preferClosest)
		case !beta:
			return false, fmt.Errorf("option %s needs the feature gate TopologyManagerPolicyBetaOptions", name)
		}
		if closest, err = strconv.ParseBool(value); err != nil {
			return false, fmt.Errorf("option %s is %q: must be true or false", name, value)
		}
	}
	return closest, nil
}
