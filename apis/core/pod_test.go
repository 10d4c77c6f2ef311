package core

import (
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/resource/resourcetest"
)

const basePod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, resourceVersion: "1", labels: {app: web}}
spec: {containers: [{name: web, image: nginx}]}
`

// The errors in these files are those of kube-apiserver 1.36, but for paths
// that it misspells.
func TestPodRules(t *testing.T) {
	files, err := filepath.Glob("testdata/pods/rules/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no rules: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var rules []resourcetest.Rule
		if err := yaml.UnmarshalStrict(data, &rules); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			resourcetest.Rules(t, pods, basePod, rules)
		})
	}
}

func TestGoldenPods(t *testing.T) {
	resourcetest.Golden(t, []resource.Declaration{pods, podTemplates, replicationControllers})
}

// TestDefaultingAnyPod: defaulting any object is idempotent, and neither it nor
// validation panics.
func TestDefaultingAnyPod(t *testing.T) {
	funcs := fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs)
	for seed := range int64(50) {
		fill := fuzzer.FuzzerFor(funcs, rand.NewSource(seed), clientgoscheme.Codecs)
		for _, d := range []resource.Declaration{pods, podTemplates, replicationControllers} {
			k := d.Kind()
			obj := k.New()
			fill.Fill(obj)
			k.Default(obj)
			once := obj.DeepCopyObject()
			if k.Default(obj); !apiequality.Semantic.DeepEqual(once, obj) {
				t.Fatalf("seed %d: defaulting twice changes a %s:\n%s", seed, k.Hub.Kind, diff.Diff(once, obj))
			}
			k.PrepareCreate(t.Context(), resourcetest.Env(), obj)
			k.Validate(obj)
			for _, c := range k.Columns {
				c.Value(obj)
			}
		}
	}
}

func TestTheStatusOfANewPodIsTheServers(t *testing.T) {
	p := podOf(t, `{status: {phase: Running, podIP: 10.0.0.1, conditions: [{type: Ready, status: "True"}]}}`)
	preparePod(t.Context(), resourcetest.Env(), p)
	want := corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}
	if !apiequality.Semantic.DeepEqual(p.Status, want) {
		t.Errorf("status of a new pod:\n%s", diff.Diff(want, p.Status))
	}
}

func TestPrepareCreate(t *testing.T) {
	for _, test := range []struct {
		rule, change string
		check        func(p *corev1.Pod) bool
	}{
		{"a pod with scheduling gates has the condition", `spec: {schedulingGates: [{name: a}]}`, func(p *corev1.Pod) bool {
			return len(p.Status.Conditions) == 1 && p.Status.Conditions[0].Reason == corev1.PodReasonSchedulingGated
		}},
		{"label keys become expressions with the pod's values", `spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, labelSelector: {}, matchLabelKeys: [app, none]}]}`, func(p *corev1.Pod) bool {
			e := p.Spec.TopologySpreadConstraints[0].LabelSelector.MatchExpressions
			return len(e) == 1 && e[0].Key == "app" && e[0].Operator == metav1.LabelSelectorOpIn && e[0].Values[0] == "web"
		}},
		{"mismatched label keys exclude the pod's values", `spec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {}, mismatchLabelKeys: [app]}]}}}`, func(p *corev1.Pod) bool {
			e := p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchExpressions
			return len(e) == 1 && e[0].Operator == metav1.LabelSelectorOpNotIn
		}},
		{"an AppArmor annotation fills the field", `metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/web: localhost/web}}`, func(p *corev1.Pod) bool {
			profile := p.Spec.Containers[0].SecurityContext.AppArmorProfile
			return profile.Type == corev1.AppArmorProfileTypeLocalhost && *profile.LocalhostProfile == "web"
		}},
		{"the deprecated field has the service account, too", `spec: {serviceAccount: robot}`, func(p *corev1.Pod) bool {
			return p.Spec.ServiceAccountName == "robot" && p.Spec.DeprecatedServiceAccount == "robot"
		}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p := podOf(t, test.change)
			if preparePod(t.Context(), resourcetest.Env(), p); !test.check(p) {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func TestQOSClassIsComputedAfterDefaulting(t *testing.T) {
	for _, test := range []struct {
		rule, change string
		want         corev1.PodQOSClass
	}{
		{"limits are the requests, too", `spec: {containers: [{name: web, image: nginx, resources: {limits: {cpu: 1, memory: 1Gi}}}]}`, corev1.PodQOSGuaranteed},
		{"one limit is not enough", `spec: {containers: [{name: web, image: nginx, resources: {limits: {cpu: 1}}}]}`, corev1.PodQOSBurstable},
		{"a lower request stays", `spec: {containers: [{name: web, image: nginx, resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 500m}}}]}`, corev1.PodQOSBurstable},
		{"pod-level limits are the pod-level requests, too", `spec: {resources: {limits: {cpu: 1, memory: 1Gi}}}`, corev1.PodQOSGuaranteed},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p := podOf(t, test.change)
			if preparePod(t.Context(), resourcetest.Env(), p); p.Status.QOSClass != test.want {
				t.Errorf("class %s, want %s", p.Status.QOSClass, test.want)
			}
		})
	}
}

// podOf returns the defaulted base pod with a merge patch.
func podOf(t *testing.T, change string) *corev1.Pod {
	t.Helper()
	return resourcetest.Object(t, pods.Kind(), basePod, change).(*corev1.Pod)
}

func TestAStatusUpdateKeepsWhatAnOlderNodeLeavesOut(t *testing.T) {
	old := podOf(t, `{metadata: {ownerReferences: [{apiVersion: v1, kind: X, name: x, uid: u}]}, status: {qosClass: Burstable, observedGeneration: 3, conditions: [{type: Ready, status: "False", observedGeneration: 2}]}}`)
	p := podOf(t, `status: {phase: Running, conditions: [{type: Ready, status: "True"}]}`)
	preparePodStatus(resourcetest.Env(), p, old)
	if len(p.OwnerReferences) != 1 || p.Status.QOSClass != corev1.PodQOSBurstable || p.Status.ObservedGeneration != 3 || p.Status.Conditions[0].ObservedGeneration != 2 {
		t.Errorf("lost: %+v %+v", p.OwnerReferences, p.Status)
	}
}

func TestAStatusUpdateKeepsTheGenerationOfEachOccurrenceOfACondition(t *testing.T) {
	old := podOf(t, `status: {conditions: [{type: A, status: "True", observedGeneration: 1}, {type: A, status: "False", observedGeneration: 2}]}`)
	p := podOf(t, `status: {conditions: [{type: A, status: "True"}, {type: A, status: "False"}, {type: A, status: "False"}]}`)
	preparePodStatus(resourcetest.Env(), p, old)
	for i, want := range []int64{1, 2, 0} {
		if got := p.Status.Conditions[i].ObservedGeneration; got != want {
			t.Errorf("generation of condition %d: %d, want %d", i, got, want)
		}
	}
}

func TestAStatusUpdateKeepsTheStatusesOfClaimsThatAnOlderClientLeavesOut(t *testing.T) {
	old := podOf(t, `{spec: {nodeName: n}, status: {resourceClaimStatuses: [{name: a}], extendedResourceClaimStatus: {resourceClaimName: b}, nodeAllocatableResourceClaimStatuses: [{resourceClaimName: c}]}}`)
	p := podOf(t, `status: {phase: Running}`)
	preparePodStatus(resourcetest.Env(), p, old)
	if len(p.Status.ResourceClaimStatuses) != 1 || p.Status.ExtendedResourceClaimStatus == nil || len(p.Status.NodeAllocatableResourceClaimStatuses) != 1 {
		t.Errorf("lost: %+v", p.Status)
	}
	p = podOf(t, `status: {resourceClaimStatuses: [], nodeAllocatableResourceClaimStatuses: []}`)
	preparePodStatus(resourcetest.Env(), p, old)
	if len(p.Status.ResourceClaimStatuses)+len(p.Status.NodeAllocatableResourceClaimStatuses) > 0 {
		t.Errorf("an empty list does not clear: %+v", p.Status)
	}
	p, old.Spec.NodeName = podOf(t, `status: {phase: Pending}`), "" // the scheduler gives the claim back
	preparePodStatus(resourcetest.Env(), p, old)
	if p.Status.ExtendedResourceClaimStatus != nil {
		t.Errorf("the scheduler cannot remove %+v", p.Status.ExtendedResourceClaimStatus)
	}
}

func TestReleasesWithoutAppArmorFieldsDoNotSetThem(t *testing.T) {
	const annotated = `metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/web: runtime/default}}`
	env := resourcetest.Env()
	env.AppArmorFields = false
	p := podOf(t, annotated)
	if preparePod(t.Context(), env, p); p.Spec.Containers[0].SecurityContext != nil {
		t.Errorf("security context %+v", p.Spec.Containers[0].SecurityContext)
	}
	// A client of such a release cannot send the field of a pod that has it.
	stored := podOf(t, annotated)
	preparePod(t.Context(), resourcetest.Env(), stored)
	pods.Kind().PrepareUpdate(t.Context(), env, p, stored)
	if errs := validatePodUpdate(p, stored); len(errs) > 0 {
		t.Errorf("an update of a pod that is stored with the field: %v", errs)
	}
}

func TestMatchLabelKeysOfSpreadConstraintsExtendTheSelectorOnlyWithTheGate(t *testing.T) {
	for on, want := range map[bool]int{false: 0, true: 1} {
		env := resourcetest.Env()
		env.SpreadSelectors = on
		p := podOf(t, `spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, labelSelector: {}, matchLabelKeys: [app]}],
  affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {}, matchLabelKeys: [app]}]}}}`)
		preparePod(t.Context(), env, p)
		if got := len(p.Spec.TopologySpreadConstraints[0].LabelSelector.MatchExpressions); got != want {
			t.Errorf("gate %t: %d expressions", on, got)
		}
		if got := len(p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchExpressions); got != 1 {
			t.Errorf("gate %t: the affinity has %d expressions", on, got)
		}
	}
}
