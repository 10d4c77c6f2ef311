package cpus

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Options are --cpu-manager-policy-options.
type Options struct {
	// FullCores allocates whole cores only (full-pcpus-only).
	FullCores bool
	// Distribute takes CPUs evenly from NUMA nodes (distribute-cpus-across-numa).
	Distribute bool
	// AlignBySocket considers CPUs of one socket as aligned (align-by-socket).
	AlignBySocket bool
}

// The options and their gates.
const (
	fullCores     = "full-pcpus-only"
	distributed   = "distribute-cpus-across-numa"
	alignBySocket = "align-by-socket"
)

// ParseOptions parses --cpu-manager-policy-options. beta and alpha report whether
// options of that stage are allowed (CPUManagerPolicyBetaOptions,
// CPUManagerPolicyAlphaOptions).
func ParseOptions(given map[string]string, beta, alpha bool) (Options, error) {
	var o Options
	targets := map[string]*bool{fullCores: &o.FullCores, distributed: &o.Distribute, alignBySocket: &o.AlignBySocket}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		target := targets[name]
		switch {
		case target == nil:
			return o, fmt.Errorf("unsupported option %q: one of %s", name, strings.Join(slices.Sorted(maps.Keys(targets)), ", "))
		case name == fullCores && !beta:
			return o, fmt.Errorf("option %s needs the feature gate CPUManagerPolicyBetaOptions", name)
		case name != fullCores && !alpha:
			return o, fmt.Errorf("option %s needs the feature gate CPUManagerPolicyAlphaOptions", name)
		}
		on, err := strconv.ParseBool(given[name])
		if err != nil {
			return o, fmt.Errorf("option %s is %q: must be true or false", name, given[name])
		}
		*target = on
	}
	if o.AlignBySocket && o.Distribute {
		return o, fmt.Errorf("options %s and %s exclude each other: leave one of them out", alignBySocket, distributed)
	}
	return o, nil
}
