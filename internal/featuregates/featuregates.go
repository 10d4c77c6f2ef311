// Package featuregates owns the lists of feature gates: those that every program of svc
// accepts, with the names, stages and defaults of release 1.28, and those of each other
// release that the API server may emulate.
package featuregates

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/component-base/featuregate"

	"svc.dev/svc/internal/releases"
	"svc.dev/svc/internal/suggest"
)

// Stage is the stage of a feature.
type Stage string

// The stages.
const (
	Alpha      Stage = "alpha"
	Beta       Stage = "beta"
	GA         Stage = "GA"
	Deprecated Stage = "deprecated"
)

// Gate is a feature gate of a release.
type Gate struct {
	Name    string
	Stage   Stage
	Default bool
	// Locked reports whether the gate cannot be changed.
	Locked bool
}

// AllAlpha and AllBeta switch all features of a stage that are not named.
const (
	AllAlpha = "AllAlpha"
	AllBeta  = "AllBeta"
)

// Documented is the release whose gates all programs have, and document 3 lists.
const Documented releases.Release = 28

// At returns the gates of a release by name, without AllAlpha and AllBeta.
func At(r releases.Release) ([]Gate, error) {
	if r == Documented {
		return All(), nil
	}
	histories, err := table()
	if err != nil {
		return nil, err
	}
	var all []Gate
	for name, history := range histories {
		if spec, has := history[r]; has {
			all = append(all, Gate{Own(name), spec.Stage, spec.Default, spec.Locked})
		}
	}
	slices.SortFunc(all, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Ever returns the names of the gates that any release has, without AllAlpha and AllBeta.
func Ever() ([]string, error) {
	histories, err := table()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, gate := range All() {
		names = append(names, gate.Name)
	}
	for name := range histories {
		names = append(names, Own(name))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// All returns the gates of release 1.28 by name, without AllAlpha and AllBeta.
func All() []Gate {
	var all []Gate
	add := func(stage Stage, on bool, names string) {
		for name := range strings.FieldsSeq(names) {
			all = append(all, Gate{name, stage, on, stage == GA})
		}
	}
	add(Beta, true, betaOn)
	add(Beta, false, betaOff)
	add(Alpha, false, alphaOff)
	add(Alpha, true, alphaOn)
	add(GA, true, gaLocked)
	slices.SortFunc(all, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Names returns all names that release 1.28 accepts.
func Names() []string {
	names := []string{AllAlpha, AllBeta}
	for _, gate := range All() {
		names = append(names, gate.Name)
	}
	return names
}

// Own returns svc's name of a gate for Kubernetes' name.
func Own(name string) string {
	return ownNames().Replace(name)
}

// ownNames is made once: hundreds of gates are renamed at the start.
var ownNames = sync.OnceValue(func() *strings.Replacer {
	return strings.NewReplacer("Kubelet", "Svclet", "KubeProxy", "SvcProxy")
})

// Unknown returns the message for a gate that is not in names.
func Unknown(name string, names []string) string {
	if similar := suggest.Closest(name, names); similar != "" {
		return fmt.Sprintf("%s is not a known feature gate; did you mean %s?", name, similar)
	}
	return name + " is not a known feature gate; docs/reference/feature-gates.md lists them"
}

// Spec returns the gate in the form of component-base: setting a locked gate to another
// value is an error.
func (g Gate) Spec() featuregate.FeatureSpec {
	spec := featuregate.FeatureSpec{Default: g.Default, PreRelease: featuregate.Beta, LockToDefault: g.Locked}
	switch g.Stage {
	case Alpha:
		spec.PreRelease = featuregate.Alpha
	case GA:
		spec.PreRelease = featuregate.GA
	case Deprecated:
		spec.PreRelease = featuregate.Deprecated
	}
	return spec
}

// New returns a set of all gates of release 1.28 at their defaults.
func New() (featuregate.MutableFeatureGate, error) { return newSet(All()) }

// NewAt returns a set of all gates of a release at their defaults. It also has those of
// other releases, which cannot be set: they are on if their feature was GA before.
func NewAt(r releases.Release) (featuregate.MutableFeatureGate, error) {
	all, err := At(r)
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, gate := range all {
		has[gate.Name] = true
	}
	histories, err := table()
	if err != nil {
		return nil, err
	}
	for name, history := range histories {
		if name = Own(name); !has[name] {
			has[name] = true
			all = append(all, Gate{name, GA, history.graduated(r), true})
		}
	}
	for _, gate := range All() { // those that only document 3 has
		if !has[gate.Name] {
			all = append(all, Gate{gate.Name, GA, gate.Stage == GA, true})
		}
	}
	return newSet(all)
}

// On reports whether a feature is on by default at a release. One without a gate is on if
// it was GA before.
func On(r releases.Release, name string) bool {
	all, err := At(r)
	if err != nil {
		return false
	}
	if i := slices.IndexFunc(all, func(gate Gate) bool { return gate.Name == name }); i >= 0 {
		return all[i].Default
	}
	histories, err := table()
	return err == nil && histories[name].graduated(r)
}

// graduated reports whether the feature was always on in the last release before r with
// the gate.
func (h History) graduated(r releases.Release) bool {
	for r--; r >= releases.Oldest; r-- {
		if spec, has := h[r]; has {
			return spec.Stage == GA && spec.Default
		}
	}
	return false
}

func newSet(all []Gate) (featuregate.MutableFeatureGate, error) {
	specs := map[featuregate.Feature]featuregate.FeatureSpec{}
	for _, gate := range all {
		specs[featuregate.Feature(gate.Name)] = gate.Spec()
	}
	gates := featuregate.NewFeatureGate()
	return gates, gates.Add(specs)
}

// Usage returns the help of --feature-gates: the gates of a release that a program acts on,
// with stages and defaults.
func Usage(r releases.Release, acts func(name string) bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Feature gates, as Name=true,Other=false. All gates of the release are accepted (docs/reference/feature-gates.md); these of %v have an effect:", r)
	all, err := At(r)
	if err != nil {
		return err.Error()
	}
	for _, gate := range all {
		if !gate.Locked && acts(gate.Name) {
			fmt.Fprintf(&b, "\n%s=true|false (%s - default=%t)", gate.Name, strings.ToUpper(string(gate.Stage)), gate.Default)
		}
	}
	return b.String()
}
