// Package difference compares what svclet and kubelet say, field by field, with
// a list of the differences that are known and explained.
package difference

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"
)

// Absent stands for the value of a field that only the other one has.
const Absent = "(absent)"

// Difference is a field of which the two say different things.
type Difference struct {
	// Subject is what they speak of: a pod, the node, a path of their servers.
	Subject string
	Path    string
	// Svclet and Kubelet are what they say, or Absent.
	Svclet, Kubelet string
}

// String shows the difference on one line.
func (d Difference) String() string {
	return fmt.Sprintf("%s: %s: svclet says %q, kubelet %q", d.Subject, d.Path, d.Svclet, d.Kubelet)
}

// Between returns the differences between what the two say of a subject, in the
// order of their paths. Nil fields are those of a subject that does not exist.
func Between(subject string, svclet, kubelet Fields) []Difference {
	paths := Fields{}
	maps.Copy(paths, svclet)
	maps.Copy(paths, kubelet)
	said := func(f Fields, path string) string {
		if value, ok := f[path]; ok {
			return value
		}
		return Absent
	}
	var all []Difference
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		d := Difference{Subject: subject, Path: path, Svclet: said(svclet, path), Kubelet: said(kubelet, path)}
		if d.Svclet != d.Kubelet {
			all = append(all, d)
		}
	}
	return all
}

// Explanation explains why the two differ in some fields. In its patterns, "*"
// stands for any text.
type Explanation struct {
	// Of is a pattern of subjects; any when empty.
	Of string `json:"of,omitempty"`
	// Path is a pattern of paths.
	Path string `json:"path"`
	// Svclet and Kubelet are patterns of what they say; anything when empty.
	Svclet  string `json:"svclet,omitempty"`
	Kubelet string `json:"kubelet,omitempty"`
	// Sometimes means that the difference does not always occur.
	Sometimes bool `json:"sometimes,omitempty"`
	// Reason is the explanation.
	Reason string `json:"reason"`
}

// List holds the explanations, by what they are about.
type List map[string][]Explanation

// ReadList reads a list from a YAML file.
func ReadList(file string) (List, error) {
	content, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	var list List
	if err := yaml.UnmarshalStrict(content, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for about, all := range list {
		for i, e := range all {
			if e.Path == "" || e.Reason == "" {
				return nil, fmt.Errorf("%s: %s[%d]: path and reason are required", file, about, i)
			}
		}
	}
	return list, nil
}

// Check returns the differences that no explanation fits, and the explanations
// that fit none although they should.
func Check(differences []Difference, explanations []Explanation) (unexplained []Difference, obsolete []Explanation) {
	used := make([]bool, len(explanations))
	for _, d := range differences {
		explained := false
		for i, e := range explanations {
			if e.fits(d) {
				explained, used[i] = true, true
			}
		}
		if !explained {
			unexplained = append(unexplained, d)
		}
	}
	for i, e := range explanations {
		if !used[i] && !e.Sometimes {
			obsolete = append(obsolete, e)
		}
	}
	return unexplained, obsolete
}

func (e *Explanation) fits(d Difference) bool {
	// The path differs most often.
	return match(e.Path, d.Path) && (e.Of == "" || match(e.Of, d.Subject)) &&
		(e.Svclet == "" || match(e.Svclet, d.Svclet)) && (e.Kubelet == "" || match(e.Kubelet, d.Kubelet))
}

// patterns are the compiled ones of all lists.
var patterns sync.Map

// match reports whether a pattern fits all of a text.
func match(pattern, text string) bool {
	compiled, ok := patterns.Load(pattern)
	if !ok {
		expression := "(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
		compiled, _ = patterns.LoadOrStore(pattern, regexp.MustCompile(expression))
	}
	return compiled.(*regexp.Regexp).MatchString(text)
}
