package gates

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
	featuremetrics "k8s.io/component-base/metrics/prometheus/feature"

	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/release/fields"
	"svc.dev/svc/apiserver/release/rules"
	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
)

// Acts reports whether the API server or one of its libraries acts on a gate. Of the
// release's other gates, the features are always on or belong to other programs.
func Acts(name string) bool {
	return slices.Contains(Own(), featuregate.Feature(name)) || fields.ActsOn(name) || rules.ActsOn(name) || release.ActsOn(name) || slices.Contains(ofLibraries, name) || slices.Contains(ofChain, featuregate.Feature(name))
}

var ofChain = []featuregate.Feature{
	ConstrainedImpersonation, ValidatingAdmissionPolicy, MutatingAdmissionPolicy, ExcludeAdmissionWebhookVirtualResources,
	AllowInsecureSvcletCertificateSigningRequests, AuthorizeNodeWithSelectors, CSIVolumeHealth, ServiceAccountNodeAudienceRestriction,
	ServiceAccountTokenNodeBinding, PodTopologyLabelsAdmission, APIServerTracing,
	DRAResourceClaimGranularStatusAuthorization, HPAGeneration,
}

// ofLibraries are the gates on which the libraries act.
var ofLibraries = []string{
	string(APIPriorityAndFairness),
	"APIResponseCompression",
	"APIServerIdentity",
	"APIServingWithRoutine",
	"AllowParsingUserUIDFromCertAuth",
	"AllowUnsafeMalformedObjectDeletion",
	"CRDObservedGenerationTracking",
	"ComponentStatusz",
	"ConcurrentWatchObjectDecode",
	"ConsistentListFromCacheSkipTimeoutFallback",
	"DeclarativeValidationBeta",
	"DetectCacheInconsistency",
	"EtcdRangeStream",
	"KMSv1",
	"ListFromCacheSnapshot",
	"OpenAPIEnums",
	"RemoteRequestHeaderUID",
	"ShardedListAndWatch",
	"SizeBasedListCostEstimate",
	"StorageVersionHash",
	"StructuredAuthenticationConfigurationEgressSelector",
	"StructuredAuthenticationConfigurationJWKSMetrics",
	"UnauthenticatedHTTP2DOSMitigation",
	"UnknownVersionInteroperabilityProxy",
	"WatchList",
	"WebhookRoundTripLoadBalancing",
}

// Record sets the metric kubernetes_feature_enabled for svc's own gates and those of a
// release, with the values that have been set in set.
func Record(ctx context.Context, r releases.Release, set featuregate.FeatureGate) error {
	gates, err := At(r, set)
	if err != nil {
		return err
	}
	all, err := featuregates.At(r)
	if err != nil {
		return err
	}
	for _, gate := range all {
		decides := gates
		// The libraries have defaults of their own, but for the gates that SetLibraries sets.
		if slices.Contains(ofLibraries, gate.Name) && !slices.Contains(ofRelease, featuregate.Feature(gate.Name)) {
			decides = set
		}
		featuremetrics.RecordFeatureInfo(ctx, gate.Name, string(gate.Spec().PreRelease), decides.Enabled(featuregate.Feature(gate.Name)))
	}
	for name, stage := range map[featuregate.Feature]string{featuregates.AllAlpha: string(featuregate.Alpha), featuregates.AllBeta: string(featuregate.Beta)} {
		featuremetrics.RecordFeatureInfo(ctx, string(name), stage, gates.Enabled(name))
	}
	for _, name := range Own() {
		featuremetrics.RecordFeatureInfo(ctx, string(name), string(featuregate.Beta), set.Enabled(name))
	}
	return nil
}

// AddFlag adds the flag --feature-gates, which sets gates. The help has those on which
// the program acts. The flag takes the gates of all releases; At checks them.
func AddFlag(fs *pflag.FlagSet, gates featuregate.MutableFeatureGate, acts func(name string) bool) {
	fs.Var(&flag{gates}, "feature-gates", Usage(featuregates.Documented, acts))
}

// Usage returns the help of --feature-gates at a release.
func Usage(r releases.Release, acts func(name string) bool) string {
	usage := featuregates.Usage(r, acts)
	for _, feature := range Own() {
		if acts(string(feature)) {
			usage += fmt.Sprintf("\n%s=true|false (BETA - default=true)", feature)
		}
	}
	return usage
}

// At returns the gates of a release, those that have been set in set with their values.
// Errors name the gates that the release does not have, and those that it has locked. Equal
// arguments have the same result, which is made once.
func At(r releases.Release, set featuregate.FeatureGate) (featuregate.FeatureGate, error) {
	values := map[string]bool{}
	for _, name := range explicit(set) {
		values[name] = set.Enabled(featuregate.Feature(name))
	}
	made.Lock()
	defer made.Unlock()
	for _, m := range made.all {
		if m.release == r && maps.Equal(m.values, values) {
			return m.gates, nil
		}
	}
	gates, err := makeAt(r, values)
	if err == nil {
		made.all = append(made.all, madeGates{r, values, gates})
	}
	return gates, err
}

// made are the gates that At has made. A start asks for its own a dozen times, and
// making them takes more than a millisecond.
var made struct {
	sync.Mutex
	all []madeGates
}

type madeGates struct {
	release releases.Release
	values  map[string]bool
	gates   featuregate.FeatureGate
}

// makeAt returns the gates of a release with the values that have been set.
func makeAt(r releases.Release, set map[string]bool) (featuregate.FeatureGate, error) {
	gates, err := featuregates.NewAt(r)
	if err != nil {
		return nil, err
	}
	all, err := featuregates.At(r)
	if err != nil {
		return nil, err
	}
	has := map[string]bool{featuregates.AllAlpha: true, featuregates.AllBeta: true}
	for _, gate := range all {
		has[gate.Name] = true
	}
	var errs []error
	values := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		switch {
		case has[name]:
			values[name] = set[name]
		case !slices.Contains(Own(), featuregate.Feature(name)) && unsupported[featuregate.Feature(name)] == "":
			errs = append(errs, fmt.Errorf("--feature-gates: release %v has no feature gate %s%s", r, name, featuregates.Where(name)))
		}
	}
	// The flag has logged warnings about these gates already.
	silent, ok := gates.(featuregate.MutableFeatureGateWithLogger)
	if !ok {
		return nil, fmt.Errorf("feature gates of type %T log without a logger", gates)
	}
	if err := silent.SetFromMapWithLogger(logr.Discard(), values); err != nil {
		errs = append(errs, fmt.Errorf("--feature-gates: %w", err))
	}
	return gates, errors.Join(errs...)
}

// explicit returns the gates that have been set, by name.
func explicit(gates featuregate.FeatureGate) []string {
	set, ok := gates.(interface {
		ExplicitlySet(name featuregate.Feature) bool
		GetAll() map[featuregate.Feature]featuregate.FeatureSpec
	})
	if !ok {
		return nil
	}
	var names []string
	for feature := range set.GetAll() {
		if set.ExplicitlySet(feature) {
			names = append(names, string(feature))
		}
	}
	slices.Sort(names)
	return names
}

// Value returns the value of a gate, and whether it has been set.
func Value(gates featuregate.FeatureGate, name string) (on, set bool) {
	known, ok := gates.(interface {
		ExplicitlySet(name featuregate.Feature) bool
	})
	set = ok && known.ExplicitlySet(featuregate.Feature(name))
	return set && gates.Enabled(featuregate.Feature(name)), set
}

// SwitchedOff reports whether a gate has been set to false.
func SwitchedOff(gates featuregate.FeatureGate, name string) bool {
	on, set := Value(gates, name)
	return set && !on
}

// WithoutEffect returns the gates of the release that have been set and on which the
// program does not act, by name.
func WithoutEffect(gates featuregate.FeatureGate, acts func(name string) bool) []string {
	return slices.DeleteFunc(explicit(gates), func(name string) bool {
		return acts(name) || name == featuregates.AllAlpha || name == featuregates.AllBeta
	})
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
			names := []string{}
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
