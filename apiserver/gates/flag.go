package gates

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"

	"svc.dev/svc/internal/featuregates"
)

// Acts reports whether the API server or one of its libraries acts on a gate. Of the
// release's other gates, the features are always on or belong to other programs.
func Acts(name string) bool {
	return slices.Contains(Own(), featuregate.Feature(name)) || slices.Contains([]string{
		string(APIPriorityAndFairness), "APIResponseCompression", "APIServerIdentity", "OpenAPIEnums", "StorageVersionHash", "UnknownVersionInteroperabilityProxy", "WatchList",
	}, name)
}

// AddFlag adds the flag --feature-gates, which sets gates. The help has those on which
// the program acts.
func AddFlag(fs *pflag.FlagSet, gates featuregate.MutableFeatureGate, acts func(name string) bool) {
	usage := featuregates.Usage(acts)
	for _, feature := range Own() {
		if acts(string(feature)) {
			usage += fmt.Sprintf("\n%s=true|false (BETA - default=true)", feature)
		}
	}
	fs.Var(&flag{gates}, "feature-gates", usage)
}

// WithoutEffect returns the gates of the release that have been set and on which the
// program does not act, by name.
func WithoutEffect(gates featuregate.FeatureGate, acts func(name string) bool) []string {
	set, ok := gates.(interface {
		ExplicitlySet(name featuregate.Feature) bool
	})
	if !ok {
		return nil
	}
	var idle []string
	for _, gate := range featuregates.All() {
		if set.ExplicitlySet(featuregate.Feature(gate.Name)) && !acts(gate.Name) {
			idle = append(idle, gate.Name)
		}
	}
	return idle
}

// flag sets gates by svc's names or by those of Kubernetes.
type flag struct {
	gates featuregate.MutableFeatureGate
}

// Set implements pflag.Value.
func (f *flag) Set(text string) error {
	values, known := map[string]bool{}, f.gates.GetAll()
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		name, value, has := strings.Cut(part, "=")
		name = featuregates.Own(strings.TrimSpace(name))
		if _, ok := known[featuregate.Feature(name)]; !ok {
			names := featuregates.Names()
			for feature := range known {
				names = append(names, string(feature))
			}
			return fmt.Errorf("%s", featuregates.Unknown(name, names))
		}
		if !has {
			return fmt.Errorf("%s has no value; must be %s=true or %s=false", name, name, name)
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("%s is %q; must be true or false", name, value)
		}
		values[name] = on
	}
	return f.gates.SetFromMap(values)
}

// String implements pflag.Value. It is empty, like the default.
func (f *flag) String() string { return "" }

// Type implements pflag.Value.
func (f *flag) Type() string { return "mapStringBool" }
