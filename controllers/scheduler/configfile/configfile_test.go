package configfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"svc.dev/svc/controllers/scheduler/decision"
)

const header = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

func TestFile(t *testing.T) {
	c, errs := parse([]byte(header + `
parallelism: 8
percentageOfNodesToScore: 30
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
profiles:
- plugins:
    score:
      disabled: [{name: NodeResourcesBalancedAllocation}]
      enabled: [{name: ImageLocality, weight: 9}, {name: NodeAffinity}]
  schedulerName: default-scheduler
- schedulerName: packing
  percentageOfNodesToScore: 100
  plugins:
    multiPoint:
      disabled: [{name: PodTopologySpread}, {name: DefaultPreemption}]
      enabled: [{name: TaintToleration, weight: 5}]
    score:
      disabled: [{name: "*"}]
      enabled: [{name: NodeResourcesFit, weight: 1}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      ignoredResourceGroups: [example.com]
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: cpu, weight: 3}, {name: example.com/gpu}]
        requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 7, ignorePreferredTermsOfExistingPods: true}
  - name: PodTopologySpread
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: PodTopologySpreadArgs
      defaultingType: List
      defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: cpu}, {name: memory}, {name: example.com/gpu}]}
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 20, minCandidateNodesAbsolute: 5}
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 9223372036854775807, shape: [{utilization: 0, score: 10}, {utilization: 100, score: 0}]}
  - name: DynamicResources
    args: {bindingTimeout: 1m30s, filterTimeout: 0s}
  - name: NodeAffinity
    args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: Exists}]}]}}}
`))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if c.InitialBackoff != 2*time.Second || c.MaxBackoff != 20*time.Second || len(c.Profiles) != 2 {
		t.Errorf("got %+v", c)
	}
	first, packing := c.Profiles[0], c.Profiles[1]
	if got := fmt.Sprint(first.SchedulerName, first.PercentageOfNodes, first.Weights, len(first.Disabled), first.NoPreemption); got !=
		"default-scheduler30 map[DynamicResources:2 ImageLocality:9 InterPodAffinity:2 NodeAffinity:1 NodeResourcesFit:1 PodTopologySpread:2 TaintToleration:3 VolumeBinding:1] 0 false" {
		t.Error(got)
	}
	if got := fmt.Sprint(packing.PercentageOfNodes, packing.Weights, packing.Disabled.UnsortedList(), packing.NoPreemption, *packing.Strategy); got !=
		"100 map[NodeResourcesFit:1] [PodTopologySpread] true {RequestedToCapacityRatio [{cpu 3} {example.com/gpu 1}] [{0 0} {100 100}]}" {
		t.Error(got)
	}
	if !packing.IgnoredGroups.Has("example.com") || packing.RequiredWeight != 7 || !packing.IgnorePreferred || !packing.ListDefaulting ||
		len(packing.DefaultConstraints) != 1 || len(packing.Balanced) != 3 || packing.MinCandidatePercentage != 20 || packing.MinCandidates != 5 || packing.BindTimeout < 290*365*24*time.Hour || packing.AddedAffinity == nil || packing.DeviceBindTimeout != 90*time.Second || packing.DeviceSearchTimeout == nil || *packing.DeviceSearchTimeout != 0 || first.DeviceSearchTimeout != nil || fmt.Sprint(packing.VolumeShape) != "[{0 100} {100 0}]" || first.VolumeShape != nil {
		t.Errorf("got %+v", packing)
	}
}

func TestExtendersThatMayBeIgnoredAreLast(t *testing.T) {
	c, errs := parse([]byte(header + `
extenders:
- urlPrefix: http://a
  filterVerb: filter
  ignorable: true
  managedResources: [{name: example.com/gpu, ignoredByScheduler: true}, {name: example.com/nic}]
- urlPrefix: http://b
  filterVerb: filter
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {ignoredResources: [example.com/fan]}
`))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if got := fmt.Sprint(c.Extenders); got != "[extender http://b extender http://a]" {
		t.Error(got)
	}
	if got := fmt.Sprint(sets.List(c.Profiles[0].IgnoredResources)); got != "[example.com/fan example.com/gpu]" {
		t.Errorf("ignored resources are %s", got)
	}
}

func TestFileWithoutProfilesIsTheDefault(t *testing.T) {
	c, errs := parse([]byte(header))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if got, want := fmt.Sprintf("%+v", c.Profiles[0]), fmt.Sprintf("%+v", decision.DefaultProfile("default-scheduler")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestErrorsNameLineAndField(t *testing.T) {
	for _, test := range []struct {
		name, file string
		want       []string // each is a part of the error
	}{
		{"empty", "", []string{": is empty"}},
		{"no YAML", "a: [", []string{": yaml: line 1:"}},
		{"two documents", header + "---\na: b\n", []string{": line 3: holds a second document"}},
		{"another kind", "apiVersion: v1\nkind: Pod\n", []string{": must have apiVersion: kubescheduler.config.k8s.io/v1 and kind: KubeSchedulerConfiguration"}},
		{"another version", strings.Replace(header, "/v1", "/v1beta3", 1), []string{": must have apiVersion: kubescheduler.config.k8s.io/v1"}},
		{"arguments as the file", "apiVersion: kubescheduler.config.k8s.io/v1\nkind: NodeAffinityArgs\n", []string{": kind is NodeAffinityArgs: must be KubeSchedulerConfiguration"}},
		{"an unknown field", header + "profiles:\n- schedulerName: a\n  plugin: {}\n", []string{`:5: unknown field "profiles[0].plugin"`}},
		{"an unknown argument", header + "profiles:\n- pluginConfig:\n  - name: NodeAffinity\n    args:\n      added: {}\n", []string{`unknown field "added"`}},
		{"a wrong type", header + "profiles: 1\n", []string{"cannot unmarshal number"}},
		{"out of range", header + "percentageOfNodesToScore: 101\npodInitialBackoffSeconds: 0\n", []string{
			":4: podInitialBackoffSeconds: Invalid value: 0: must be from 1 to 86400", ":3: percentageOfNodesToScore: Invalid value: 101: must be from 0 to 100"}},
		{"backoffs", header + "podInitialBackoffSeconds: 20\n", []string{": podMaxBackoffSeconds: Invalid value: 10: must not be less than podInitialBackoffSeconds, 20"}},
		{"names of profiles", header + "profiles:\n- schedulerName: a\n- schedulerName: a\n- {}\n", []string{
			`:5: profiles[1].schedulerName: Duplicate value: "a"`, ":6: profiles[2].schedulerName: Required value"}},
		{"an unknown plugin", header + "profiles:\n- plugins:\n    filter:\n      disabled:\n      - name: NodePort\n    score:\n      enabled:\n      - name: NodeName\n", []string{
			`:7: profiles[0].plugins.filter.disabled[0].name: Invalid value: "NodePort": there is no such plugin here: did you mean "NodePorts"?`,
			`:10: profiles[0].plugins.score.enabled[0].name: Unsupported value: "NodeName"`}},
		{"a plugin twice, and a weight", header + "profiles:\n- plugins:\n    score:\n      enabled: [{name: ImageLocality, weight: -1}, {name: ImageLocality}]\n", []string{
			":6: profiles[0].plugins.score.enabled[0].weight: Invalid value: -1", ":6: profiles[0].plugins.score.enabled[1].name: Duplicate value"}},
		{"other extension points", header + "profiles:\n- plugins:\n    preScore:\n      disabled: [{name: '*'}]\n", []string{":5: profiles[0].plugins.preScore: Forbidden: unsupported: plugins are enabled and disabled at multiPoint"}},
		{"what cannot be disabled", header + "profiles:\n- plugins:\n    multiPoint:\n      disabled: [{name: DefaultBinder}]\n", []string{":6: profiles[0].plugins.multiPoint.disabled[0].name: Forbidden: unsupported: DefaultBinder cannot be disabled"}},
		{"what the manager has", header + "leaderElection: {leaderElect: true}\nclientConnection: {qps: 5}\n", []string{":3: leaderElection: Forbidden", ":4: clientConnection: Forbidden"}},
		{"arguments of other plugins", header + "profiles:\n- pluginConfig:\n  - name: NodeName\n    args: {}\n", []string{
			":5: profiles[0].pluginConfig[0].name: Forbidden: unsupported: NodeName has no arguments here"}},
		{"arguments of devices", header + "profiles:\n- pluginConfig:\n  - name: DynamicResources\n    args: {filterTimeout: -1s, bindingTimeout: 999ms}\n", []string{
			`:6: profiles[0].pluginConfig[0].args.filterTimeout: Invalid value: "-1s": must not be negative`,
			`:6: profiles[0].pluginConfig[0].args.bindingTimeout: Invalid value: "999ms": must be at least 1 second`}},
		{"arguments of volumes", header + "profiles:\n- pluginConfig:\n  - name: VolumeBinding\n    args: {bindTimeoutSeconds: -1, shape: [{utilization: 0, score: 1}, {utilization: 0, score: 11}]}\n", []string{
			":6: profiles[0].pluginConfig[0].args.bindTimeoutSeconds: Invalid value: -1: must not be negative",
			":6: profiles[0].pluginConfig[0].args.shape[1].score: Invalid value: 11: must be from 0 to 10",
			":6: profiles[0].pluginConfig[0].args.shape[1].utilization: Invalid value: 0: must be greater"}},
		{"arguments", header + `profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args:
      ignoredResources: [cpu]
      ignoredResourceGroups: [a/b]
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: cpu, weight: 101}, {name: cpu}]
        requestedToCapacityRatio: {shape: [{utilization: 50, score: 11}, {utilization: 50, score: 1}]}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 101}
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}
  - name: PodTopologySpread
    args: {defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}
`, []string{
			":7: profiles[0].pluginConfig[0].args.ignoredResources[0]: Invalid value", ":8: profiles[0].pluginConfig[0].args.ignoredResourceGroups[0]",
			":11: profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].weight", "resources[1].name: Duplicate value",
			"shape[0].score: Invalid value: 11: must be from 0 to 10", "shape[1].utilization: Invalid value: 50: must be greater",
			":14: profiles[0].pluginConfig[1].args.hardPodAffinityWeight", ":16: profiles[0].pluginConfig[2].args.minCandidateNodesAbsolute",
			":18: profiles[0].pluginConfig[3].args.defaultingType"}},
		{"types and constraints", header + `profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: Best}}
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 0, whenUnsatisfiable: Never, labelSelector: {}, minDomains: 2}]
`, []string{
			":6: profiles[0].pluginConfig[0].args.scoringStrategy.type: Unsupported value: \"Best\"",
			"defaultConstraints[0].maxSkew", "defaultConstraints[0].topologyKey: Required", "defaultConstraints[0].whenUnsatisfiable: Unsupported", "defaultConstraints[0].labelSelector: Forbidden", "defaultConstraints[0]: Forbidden"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			expectErrors(t, test.file, test.want)
		})
	}
}

func TestEveryExtensionPointIsAppliedOrRefused(t *testing.T) {
	applied := sets.New("multiPoint", "filter", "score", "postFilter")
	points := reflect.TypeFor[configv1.Plugins]()
	for i := range points.NumField() {
		point, _, _ := strings.Cut(points.Field(i).Tag.Get("json"), ",")
		if applied.Has(point) {
			continue
		}
		t.Run(point, func(t *testing.T) {
			expectErrors(t, header+"profiles:\n- plugins:\n    "+point+":\n      disabled: [{name: '*'}]\n", []string{
				":5: profiles[0].plugins." + point + ": Forbidden: unsupported: plugins are enabled and disabled at multiPoint"})
		})
	}
}

// expectErrors checks the errors of a file, of each of which a part is wanted.
func expectErrors(t *testing.T, file string, want []string) {
	t.Helper()
	_, errs := parse([]byte(file))
	ok := len(errs) == len(want)
	for i := range min(len(errs), len(want)) {
		ok = ok && strings.Contains(errs[i].Error(), want[i])
	}
	if !ok {
		t.Errorf("got  %q\nwant %q", errs, want)
	}
}

func TestErrorsOfExtenders(t *testing.T) {
	expectErrors(t, header+`extenders:
- urlPrefix: localhost:8888
  prioritizeVerb: prioritize
  bindVerb: bind
  httpTimeout: -1s
  managedResources: [{name: cpu}, {name: example.com/gpu}]
- urlPrefix: http://localhost
  enableHTTPS: true
  bindVerb: bind
  managedResources:
  - name: example.com/gpu
- urlPrefix: https://localhost
  enableHTTPS: true
  tlsConfig: {caFile: /nonexistent/ca.crt}
`, []string{
		":4: extenders[0].urlPrefix: Invalid value", ":7: extenders[0].httpTimeout: Invalid value", ":4: extenders[0].weight: Invalid value: 0: must be positive",
		":8: extenders[0].managedResources[0].name: Invalid value: \"cpu\": must be an extended resource",
		":9: extenders[1].urlPrefix: Invalid value: \"http://localhost\": must begin with https:",
		":11: extenders[1].bindVerb: Invalid value: \"bind\": only one extender may bind pods", ":13: extenders[1].managedResources[0].name: Duplicate value",
		":16: extenders[2].tlsConfig: Invalid value"})
}

func TestReadNamesTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if _, errs := Read(file); len(errs) != 1 || !errors.Is(errs[0], fs.ErrNotExist) {
		t.Errorf("got %v", errs)
	}
	if err := os.WriteFile(file, []byte(header+"percentageOfNodesToScore: 101\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errs := Read(file)
	if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), file+":3: percentageOfNodesToScore: ") {
		t.Errorf("got %v", errs)
	}
}

// FuzzParse checks that no file makes the parser panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte(header + "profiles:\n- plugins: {score: {enabled: [{name: ImageLocality, weight: 2}]}}\n"))
	f.Add([]byte(header + "extenders: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, errs := parse(data)
		if (c == nil) == (len(errs) == 0) || slices.Contains(errs, nil) {
			t.Errorf("got %v, %v", c, errs)
		}
	})
}
