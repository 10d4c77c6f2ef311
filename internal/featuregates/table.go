package featuregates

import (
	_ "embed" // the table
	"fmt"
	"strconv"
	"strings"
	"sync"

	"svc.dev/svc/internal/releases"
)

// text is the table: a line for each gate, with its name and, for each span of releases
// in which nothing changed, first-last=stage, with ",on" for gates that are on by default
// and ",locked" for those that cannot be changed. hack/gates generates it.
//
//go:embed zz_generated.gates.txt
var text string

// Spec is what a release says of a gate.
type Spec struct {
	Stage Stage
	// Default reports whether the feature is on by default.
	Default bool
	// Locked reports whether the gate cannot be changed.
	Locked bool
}

// History is a gate in the releases that have it.
type History map[releases.Release]Spec

// Histories returns the histories of all gates by Kubernetes' name, as Kubernetes has them
// in 1.28 too.
func Histories() (map[string]History, error) { return table() }

var table = sync.OnceValues(func() (map[string]History, error) { return Parse(text) })

// String returns the spans of the history, as in the table.
func (h History) String() string {
	var spans []string
	for r := releases.Oldest; r <= releases.Newest; r++ {
		spec, has := h[r]
		if !has {
			continue
		}
		last := r
		for next, ok := h[last+1]; ok && next == spec; next, ok = h[last+1] {
			last++
		}
		end := ""
		if last < releases.Newest {
			end = strconv.Itoa(int(last))
		}
		spans = append(spans, fmt.Sprintf("%d-%s=%v", int(r), end, spec))
		r = last
	}
	return strings.Join(spans, " ")
}

// String returns the stage, and whether the gate is on and locked, as in the table.
func (s Spec) String() string {
	text := string(s.Stage)
	if s.Default {
		text += ",on"
	}
	if s.Locked {
		text += ",locked"
	}
	return text
}

// Parse reads a table.
func Parse(text string) (map[string]History, error) {
	all := map[string]History{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" || words[0] == "digest" {
			continue
		}
		h := History{}
		for _, word := range words[1:] {
			if err := h.add(word); err != nil {
				return nil, fmt.Errorf("table of feature gates: %s: %w", words[0], err)
			}
		}
		all[words[0]] = h
	}
	return all, nil
}

// add adds a span.
func (h History) add(span string) error {
	when, what, found := strings.Cut(span, "=")
	first, last, dash := strings.Cut(when, "-")
	from, err := strconv.Atoi(first)
	to := int(releases.Newest)
	if err == nil && last != "" {
		to, err = strconv.Atoi(last)
	}
	if err != nil || !found || !dash {
		return fmt.Errorf("invalid span %q: must be first-last=stage", span)
	}
	var spec Spec
	for i, word := range strings.Split(what, ",") {
		switch {
		case i == 0:
			spec.Stage = Stage(word)
		case word == "on":
			spec.Default = true
		case word == "locked":
			spec.Locked = true
		default:
			return fmt.Errorf("unknown word %q", word)
		}
	}
	for r := releases.Release(from); r <= releases.Release(to); r++ {
		h[r] = spec
	}
	return nil
}

// Where returns which releases have a gate, as ": releases 1.30 to 1.33 have it", or
// nothing for one that none has.
func Where(name string) string {
	histories, err := table()
	if err != nil {
		return ""
	}
	var first, last releases.Release
	for kube, history := range histories {
		if Own(kube) != name {
			continue
		}
		for r := range history {
			if first == 0 || r < first {
				first = r
			}
			last = max(last, r)
		}
	}
	if first == 0 {
		return ""
	}
	return fmt.Sprintf(": releases %v to %v have it", first, last)
}
