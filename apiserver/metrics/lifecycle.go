package metrics

import (
	"regexp"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/release"
)

// deprecation matches what the libraries write into the description of a metric
// that is deprecated, and what document 2 (section 9, rule 12) has there.
var deprecation = regexp.MustCompile(`\(Deprecated (?:since|from) (\d+)\.(\d+)(?:\.\d+)?\) `)

// describe rewrites the description of a family as the release has it: metrics that
// are deprecated later are not described so. It returns the release that deprecated the
// family, or nil, and whether the release shows it.
func (c Config) describe(f *dto.MetricFamily) (deprecated *release.Release, isShown bool) {
	help := f.GetHelp()
	found := deprecation.FindStringSubmatchIndex(help)
	if found == nil {
		return nil, true
	}
	number := func(group int) int {
		n, err := strconv.Atoi(help[found[2*group]:found[2*group+1]])
		if err != nil { // more digits than a release can have
			return 0
		}
		return n
	}
	from := release.Release{Major: number(1), Minor: number(2)}
	before, after := help[:found[0]], help[found[1]:]
	if c.Release.Before(from) {
		f.Help = ptr.To(before + after)
		return nil, true
	}
	f.Help = ptr.To(before + "(Deprecated from " + from.String() + ") " + after)
	hidden := release.Release{Major: from.Major, Minor: from.Minor + shownReleases(help)}
	return &from, c.ShowHidden || c.Release.Before(hidden)
}

// shownReleases returns the number of releases that show a deprecated metric, by its
// stability (document 2, section 9, rule 12).
func shownReleases(help string) int {
	switch {
	case strings.Contains(help, "[STABLE]"):
		return 3
	case strings.Contains(help, "[BETA]"):
		return 1
	}
	return 0
}
