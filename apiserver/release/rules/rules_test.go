package rules

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/resource/resourcetest"
	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
)

const (
	podBase = `
metadata: {name: a, namespace: default}
spec:
  containers: [{name: c, image: i}]
`
	jobBase = `
metadata: {name: a, namespace: default, uid: u}
spec:
  suspend: true
  parallelism: 2
  completions: 2
  completionMode: Indexed
  manualSelector: true
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
`
	serviceBase = `
metadata: {name: a, namespace: default, resourceVersion: "1"}
spec: {ports: [{port: 80}]}
`
	claimBase = `
metadata: {name: a, namespace: default, resourceVersion: "1"}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}, volumeName: v, storageClassName: s}
status: {phase: Bound, capacity: {storage: 1Gi}}
`
	volumeBase = `
metadata: {name: a}
spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /a}}
`
	autoscalerBase = `
metadata: {name: a, namespace: default}
spec:
  maxReplicas: 3
  scaleTargetRef: {kind: Deployment, name: d, apiVersion: apps/v1}
  metrics: [{type: External, external: {metric: {name: q}, target: {type: Value, value: 1}}}]
`
	policyBase = `
metadata: {name: a, namespace: default}
spec: {podSelector: {}, ingress: [{ports: [{port: 1}]}]}
`
	quotaBase = `
metadata: {name: a, namespace: default}
spec: {hard: {pods: 1}}
`
)

// ruleTests are changes of an object that a gate allows: on create, or, with update, in an
// update of the base, by a view if one is named. since is the first release that accepts the change by default.
var ruleTests = []struct {
	gate, kind, base, change string
	update                   bool
	view                     string
	since                    releases.Release
	want                     string
}{
	{gate: "ContainerRestartRules", kind: "Pod", base: podBase, change: `spec: {initContainers: [{name: i, image: i, restartPolicy: OnFailure}]}`, since: 35,
		want: `spec.initContainers[0].restartPolicy: Unsupported value: "OnFailure": supported values: "Always"`},
	{gate: "ContainerRestartRules", kind: "Pod", base: podBase, change: `spec: {containers: [{name: c, image: i, restartPolicy: Always}]}`, since: 35,
		want: `spec.containers[0].restartPolicy: Forbidden: may not be set for non-init containers`},
	{gate: "DownwardAPIHugePages", kind: "Pod", base: podBase, since: 23,
		change: `spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 1, hugepages-2Mi: 2Mi}}, env: [{name: e, valueFrom: {resourceFieldRef: {containerName: c, resource: limits.hugepages-2Mi}}}]}]}`,
		want:   `spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.hugepages-2Mi": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"`},
	{gate: "ElasticIndexedJob", kind: "Job", base: jobBase, change: `spec: {parallelism: 3, completions: 3}`, update: true, since: 27,
		want: `spec.completions: Invalid value: 3: field is immutable`},
	{gate: "HPAScaleToZero", kind: "HorizontalPodAutoscaler", base: autoscalerBase, change: `spec: {minReplicas: 0}`, since: 37,
		want: `spec.minReplicas: Invalid value: 0: must be greater than or equal to 1`},
	{gate: "InPlacePodVerticalScalingInitContainers", kind: "Pod", update: true, view: "resize", since: 36,
		base:   "\nmetadata: {name: a, namespace: default}\nspec: {containers: [{name: c, image: i}], initContainers: [{name: i, image: i, resources: {requests: {cpu: 1}}}]}\n",
		change: `spec: {initContainers: [{name: i, image: i, resources: {requests: {cpu: 2}}}]}`, want: `spec: Forbidden: resources for non-sidecar init containers are immutable`},
	{gate: "InPlacePodLevelResourcesVerticalScaling", kind: "Pod", base: strings.TrimSuffix(podBase, "\n") + "\n  resources: {requests: {cpu: 1}}\n", update: true, view: "resize", since: 36,
		change: `spec: {containers: [{name: c, image: i, resources: {requests: {memory: 1}}}]}`,
		want:   `[]: Forbidden: resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled`},
	{gate: "MatchLabelKeysInPodTopologySpreadSelectorMerge", kind: "Pod", base: podBase, since: 34,
		change: `spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: a}}, matchLabelKeys: [app, b]}]}`,
		want:   `spec.topologySpreadConstraints[0].matchLabelKeys[0]: Invalid value: "app": exists in both matchLabelKeys and labelSelector`},
	{gate: "MatchLabelKeysInPodTopologySpreadSelectorMerge", kind: "Job", base: jobBase, since: 34,
		change: `spec: {template: {spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: app, operator: Exists}]}, matchLabelKeys: [app]}]}}}`,
		want:   `spec.template.spec.topologySpreadConstraints[0].matchLabelKeys[0]: Invalid value: "app": exists in both matchLabelKeys and labelSelector`},
	{gate: "MixedProtocolLBService", kind: "Service", base: serviceBase, change: `spec: {type: LoadBalancer, ports: [{name: a, port: 1}, {name: b, port: 1, protocol: UDP}]}`, since: 24,
		want: `spec.ports: Invalid value: [{"name":"a","protocol":"TCP","port":1,"targetPort":1},{"name":"b","protocol":"UDP","port":1,"targetPort":1}]: cannot create an external load balancer with mix protocols`},
	{gate: "JobMutableNodeSchedulingDirectives", kind: "Job", base: jobBase, change: `spec: {template: {spec: {nodeSelector: {x: y}}}}`, update: true, since: 23,
		want: `spec.template: Invalid value: ...: field is immutable`},
	{gate: "MutableSchedulingDirectivesForSuspendedJobs", kind: "Job", update: true, since: 36,
		base:   strings.TrimSuffix(jobBase, "\n") + "\nstatus: {startTime: \"2024-01-01T00:00:00Z\", conditions: [{type: Suspended, status: \"True\"}]}\n",
		change: `spec: {template: {spec: {nodeSelector: {x: y}}}}`, want: `spec.template: Invalid value: ...: field is immutable`},
	{gate: "MutableCSINodeAllocatableCount", kind: "CSINode", update: true, since: 35,
		base:   "\nmetadata: {name: a, resourceVersion: \"1\"}\nspec: {drivers: [{name: d, nodeID: x, topologyKeys: [t], allocatable: {count: 8}}]}\n",
		change: `spec: {drivers: [{name: d, nodeID: x, topologyKeys: [t], allocatable: {count: 9}}]}`,
		want:   `spec.drivers: Invalid value: {"name":"d","nodeID":"x","topologyKeys":["t"],"allocatable":{"count":9}}: field is immutable`},
	{gate: "MutablePodResourcesForSuspendedJobs", kind: "Job", base: jobBase, update: true, since: 36,
		change: `spec: {template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}`, want: `spec.template: Invalid value: ...: field is immutable`},
	{gate: "PodAffinityNamespaceSelector", kind: "ResourceQuota", base: quotaBase, change: `spec: {scopeSelector: {matchExpressions: [{scopeName: CrossNamespacePodAffinity, operator: Exists}]}}`, since: 22,
		want: `spec.scopeSelector.matchExpressions[0].scopeName: Invalid value: "CrossNamespacePodAffinity": unsupported scope`},
	{gate: "VolumeAttributesClass", kind: "ResourceQuota", base: quotaBase, since: 34,
		change: `spec: {hard: {pods: null, persistentvolumeclaims: 1}, scopeSelector: {matchExpressions: [{scopeName: VolumeAttributesClass, operator: Exists}]}}`,
		want:   `spec.scopeSelector.matchExpressions[0].scopeName: Invalid value: "VolumeAttributesClass": unsupported scope`},
	{gate: "PreferSameTrafficDistribution", kind: "Service", base: serviceBase, change: `spec: {trafficDistribution: PreferSameNode}`, since: 34,
		want: `spec.trafficDistribution: Unsupported value: "PreferSameNode": supported values: "PreferClose"`},
	{gate: "ReadWriteOncePod", kind: "PersistentVolume", base: volumeBase, change: `spec: {accessModes: [ReadWriteOncePod]}`, since: 27,
		want: `spec.accessModes: Unsupported value: "ReadWriteOncePod": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce"`},
	{gate: "ReadWriteOncePod", kind: "Pod", base: podBase, since: 27,
		change: `spec: {volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1}}}}}}]}`,
		want:   `spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes: Unsupported value: "ReadWriteOncePod": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce"`},
	{gate: "RecoverVolumeExpansionFailure", kind: "PersistentVolumeClaim", base: claimBase, change: `spec: {resources: {requests: {storage: 1500Mi}}}`, update: true, since: 32,
		want: `spec.resources.requests.storage: Forbidden: field can not be less than previous value`},
	{gate: "RelaxedDNSSearchValidation", kind: "Pod", base: podBase, change: `spec: {dnsConfig: {searches: [_tcp.example.com.]}}`, since: 33,
		want: `spec.dnsConfig.searches[0]: Invalid value: "_tcp.example.com": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
	{gate: "RelaxedEnvironmentVariableValidation", kind: "Pod", base: podBase, change: `spec: {containers: [{name: c, image: i, env: [{name: "a b"}]}]}`, since: 32,
		want: `spec.containers[0].env[0].name: Invalid value: "a b": a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')`},
	{gate: "RelaxedServiceNameValidation", kind: "Service", base: serviceBase, change: `metadata: {name: 1a}`, since: 36,
		want: `metadata.name: Invalid value: "1a": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`},
	{gate: "SCTPSupport", kind: "NetworkPolicy", base: policyBase, change: `spec: {ingress: [{ports: [{protocol: SCTP}]}]}`, since: 19,
		want: `spec.ingress[0].ports[0].protocol: Unsupported value: "SCTP": supported values: "TCP", "UDP"`},
	{gate: "SCTPSupport", kind: "Pod", base: podBase, change: `spec: {containers: [{name: c, image: i, ports: [{containerPort: 1, protocol: SCTP}]}]}`, since: 19,
		want: `spec.containers[0].ports[0].protocol: Unsupported value: "SCTP": supported values: "TCP", "UDP"`},
	{gate: "SCTPSupport", kind: "Service", base: serviceBase, change: `spec: {ports: [{port: 1, protocol: SCTP}]}`, since: 19,
		want: `spec.ports[0].protocol: Unsupported value: "SCTP": supported values: "TCP", "UDP"`},
	{gate: "TaintTolerationComparisonOperators", kind: "Pod", base: podBase, change: `spec: {tolerations: [{key: a, operator: Gt, value: "1"}]}`, since: releases.Newest + 1,
		want: `spec.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists"`},
}

var kinds = sync.OnceValue(apis.Kinds)

// kindNamed returns a kind with the rules of a gate: as a release has it, or as it is set. All
// other gates are on.
func kindNamed(t *testing.T, name string, r releases.Release, gate string, on *bool) *resource.Kind {
	t.Helper()
	if on == nil {
		set, err := featuregates.NewAt(r)
		if err != nil {
			t.Fatal(err)
		}
		on = ptr.To(set.Enabled(featuregate.Feature(gate)))
	}
	k := *kinds()[slices.IndexFunc(kinds(), func(k *resource.Kind) bool { return k.Hub.Kind == name })]
	k.Views = slices.Clone(k.Views)
	Apply(&k, func(g string) bool { return *on || g != gate })
	return &k
}

// nameErrors returns the errors of an object's name.
func nameErrors(k *resource.Kind, obj runtime.Object) field.ErrorList {
	name := obj.(metav1.Object).GetName()
	return resource.Invalid(field.NewPath("metadata", "name"), name, k.NameRule(name, false))
}

// messages returns the errors of a create, or of an update of old.
func messages(k *resource.Kind, obj, old runtime.Object) []string {
	var errs field.ErrorList
	if old == nil {
		errs = append(append(nameErrors(k, obj), k.Validate(obj)...), k.ValidateCreate(obj)...)
	} else {
		errs = append(k.Validate(obj), k.ValidateUpdate(obj, old)...)
	}
	return texts(errs)
}

// viewMessages returns the errors of an update by a view.
func viewMessages(k *resource.Kind, view string, obj, old runtime.Object) []string {
	return texts(k.Views[slices.IndexFunc(k.Views, func(v resource.KindView) bool { return v.Name == view })].Validate(obj, old))
}

func texts(errs field.ErrorList) []string {
	var texts []string
	for _, err := range errs {
		text := err.Error()
		if err.Field == "spec.template" { // a Go struct
			text = "spec.template: Invalid value: ...: " + err.Detail
		}
		texts = append(texts, text)
	}
	return texts
}

func TestEachRuleHoldsUntilItsGateIsOn(t *testing.T) {
	for _, test := range ruleTests {
		t.Run(test.gate+" "+test.kind, func(t *testing.T) {
			for r := releases.Oldest; r <= releases.Newest; r++ {
				for _, set := range []*bool{nil, ptr.To(true), ptr.To(false)} {
					k := kindNamed(t, test.kind, r, test.gate, set)
					obj := resourcetest.Object(t, k, test.base, test.change)
					var old runtime.Object
					if test.update {
						old = resourcetest.Object(t, k, test.base, "{}")
					}
					var want []string
					if !ptr.Deref(set, r >= test.since) {
						want = []string{test.want}
					}
					got := messages(k, obj, old)
					if test.view != "" {
						got = viewMessages(k, test.view, obj, old)
					}
					if !slices.Equal(got, want) {
						t.Fatalf("at %v, gate %v:\n%q, want\n%q", r, set, got, want)
					}
				}
			}
		})
	}
}

func TestAServiceNameThatEveryReleaseRefusesHasOneError(t *testing.T) {
	for _, on := range []bool{false, true} {
		k := kindNamed(t, "Service", releases.Newest, "RelaxedServiceNameValidation", &on)
		if got := messages(k, resourcetest.Object(t, k, serviceBase, `metadata: {name: A_b}`), nil); len(got) != 1 || !strings.Contains(got[0], `metadata.name: Invalid value: "A_b"`) {
			t.Errorf("gate %t: %q", on, got)
		}
	}
}

func TestAnObjectMayKeepWhatARuleRefuses(t *testing.T) {
	for _, test := range ruleTests {
		if test.update {
			continue
		}
		k := kindNamed(t, test.kind, releases.Newest, test.gate, ptr.To(false))
		old := resourcetest.Object(t, k, test.base, test.change)
		if got := messages(k, old.DeepCopyObject(), old); len(got) > 0 {
			t.Errorf("%s %s: %q", test.gate, test.kind, got)
		}
	}
}

func TestEachRuleIsTestedAndItsGateIsKnown(t *testing.T) {
	known, err := featuregates.Ever()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all() {
		if !slices.Contains(known, r.gate) {
			t.Errorf("no release has the gate %s", r.gate)
		}
		tested := false
		for _, test := range ruleTests {
			tested = tested || test.gate == r.gate
		}
		if !tested && r.gate != "ExpandPersistentVolumes" && r.refusal == nil && r.status == nil && r.valid == nil && r.defaults == nil {
			t.Errorf("no test of %s", r.gate)
		}
	}
}

func TestClaimsDoNotGrowWithoutExpandPersistentVolumes(t *testing.T) {
	k := kindNamed(t, "PersistentVolumeClaim", 20, "ExpandPersistentVolumes", ptr.To(false))
	obj := resourcetest.Object(t, k, claimBase, `spec: {resources: {requests: {storage: 3Gi}}}`)
	want := []string{"spec: Forbidden: is immutable after creation"}
	if got := messages(k, obj, resourcetest.Object(t, k, claimBase, "{}")); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := messages(kindNamed(t, "PersistentVolumeClaim", 20, "ExpandPersistentVolumes", nil), obj, resourcetest.Object(t, k, claimBase, "{}")); len(got) > 0 {
		t.Errorf("by default: %q", got)
	}
}

func TestNodesOfVolumesChangeWithMutablePVNodeAffinity(t *testing.T) {
	const affinity = `spec: {nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [%s]}]}]}}}`
	for _, test := range []struct {
		on   *bool
		more string // of the change
		want []string
	}{
		{nil, "", []string{"nodeAffinity"}},
		{ptr.To(false), "", []string{"nodeAffinity"}},
		{ptr.To(true), "", nil},
		{ptr.To(true), ", volumeMode: Block", []string{"volumeMode"}},
	} {
		k := kindNamed(t, "PersistentVolume", releases.Newest, "MutablePVNodeAffinity", test.on)
		old := resourcetest.Object(t, k, volumeBase, fmt.Sprintf(affinity, "a"))
		obj := resourcetest.Object(t, k, volumeBase, strings.TrimSuffix(fmt.Sprintf(affinity, "b"), "}")+test.more+"}")
		var got []string
		for _, err := range k.ValidateUpdate(obj, old) {
			got = append(got, err.Field)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("gate %v: errors of %q, want %q", test.on, got, test.want)
		}
	}
}
