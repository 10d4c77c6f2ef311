// Package featuregates owns the list of the feature gates that every program of svc
// accepts: the names, stages and defaults of release 1.28.
package featuregates

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/component-base/featuregate"

	"svc.dev/svc/internal/suggest"
)

// Stage is the stage of a feature.
type Stage string

// The stages. A feature in GA cannot be switched off.
const (
	Alpha Stage = "alpha"
	Beta  Stage = "beta"
	GA    Stage = "GA"
)

// Gate is a feature gate of the release.
type Gate struct {
	Name    string
	Stage   Stage
	Default bool
}

// AllAlpha and AllBeta switch all features of a stage that are not named.
const (
	AllAlpha = "AllAlpha"
	AllBeta  = "AllBeta"
)

// All returns the gates by name, without AllAlpha and AllBeta.
func All() []Gate {
	var all []Gate
	add := func(stage Stage, on bool, names string) {
		for name := range strings.FieldsSeq(names) {
			all = append(all, Gate{name, stage, on})
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

// Names returns all names that the release accepts.
func Names() []string {
	names := []string{AllAlpha, AllBeta}
	for _, gate := range All() {
		names = append(names, gate.Name)
	}
	return names
}

// Own returns svc's name of a gate for Kubernetes' name.
func Own(name string) string {
	return strings.NewReplacer("Kubelet", "Svclet", "KubeProxy", "SvcProxy").Replace(name)
}

// Unknown returns the message for a gate that is not in names.
func Unknown(name string, names []string) string {
	if similar := suggest.Closest(name, names); similar != "" {
		return fmt.Sprintf("%s is not a known feature gate; did you mean %s?", name, similar)
	}
	return name + " is not a known feature gate; docs/reference/feature-gates.md lists them"
}

// Spec returns the gate in the form of component-base: setting a feature in GA logs a
// warning, and false is an error.
func (g Gate) Spec() featuregate.FeatureSpec {
	spec := featuregate.FeatureSpec{Default: g.Default, PreRelease: featuregate.Beta}
	switch g.Stage {
	case Alpha:
		spec.PreRelease = featuregate.Alpha
	case GA:
		spec.PreRelease, spec.LockToDefault = featuregate.GA, true
	}
	return spec
}

// New returns a set of all gates at their defaults.
func New() (featuregate.MutableFeatureGate, error) {
	specs := map[featuregate.Feature]featuregate.FeatureSpec{}
	for _, gate := range All() {
		specs[featuregate.Feature(gate.Name)] = gate.Spec()
	}
	gates := featuregate.NewFeatureGate()
	return gates, gates.Add(specs)
}

// Usage returns the help of --feature-gates: the gates that a program acts on, with
// stages and defaults.
func Usage(acts func(name string) bool) string {
	var b strings.Builder
	b.WriteString("Feature gates, as Name=true,Other=false. All gates of the release are accepted (docs/reference/feature-gates.md); these have an effect:")
	for _, gate := range All() {
		if gate.Stage != GA && acts(gate.Name) {
			fmt.Fprintf(&b, "\n%s=true|false (%s - default=%t)", gate.Name, strings.ToUpper(string(gate.Stage)), gate.Default)
		}
	}
	return b.String()
}
