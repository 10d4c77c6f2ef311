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

	"svc.dev/svc/apis/podspec"
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

// TestDefaultingAnyPod feeds random objects: defaulting settles what it
// touches, and neither it nor validation panics.
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

func TestNewPodsHaveNoStatusOfTheirOwn(t *testing.T) {
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
		{"a gated pod says so", `spec: {schedulingGates: [{name: a}]}`, func(p *corev1.Pod) bool {
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
		{"the account keeps its old name, too", `spec: {serviceAccount: robot}`, func(p *corev1.Pod) bool {
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

func TestQOSClass(t *testing.T) {
	for _, test := range []struct {
		rule, change string
		want         corev1.PodQOSClass
	}{
		{"nothing is best effort", ``, corev1.PodQOSBestEffort},
		{"zero is nothing", resources(`requests: {cpu: 0}`), corev1.PodQOSBestEffort},
		{"other resources do not count", resources(`limits: {ephemeral-storage: 1Gi}`), corev1.PodQOSBestEffort},
		{"a request alone is burstable", resources(`requests: {cpu: 1}`), corev1.PodQOSBurstable},
		{"limits for cpu and memory guarantee", resources(`limits: {cpu: 1, memory: 1Gi}`), corev1.PodQOSGuaranteed},
		{"one limit does not guarantee", resources(`limits: {cpu: 1}`), corev1.PodQOSBurstable},
		{"limits above requests do not guarantee", resources(`limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 500m}`), corev1.PodQOSBurstable},
		{"every container must have limits", `spec: {containers: [{name: a, image: x, resources: {limits: {cpu: 1, memory: 1Gi}}}, {name: b, image: x}]}`, corev1.PodQOSBurstable},
		{"init containers count", `spec: {initContainers: [{name: a, image: x, resources: {requests: {cpu: 1}}}]}`, corev1.PodQOSBurstable},
		{"empty resources of the pod are none", `spec: {resources: {}, containers: [{name: a, image: x, resources: {limits: {cpu: 1, memory: 1Gi}}}]}`, corev1.PodQOSGuaranteed},
		{"the pod's own resources count instead", `spec: {resources: {limits: {cpu: 1, memory: 1Gi}}}`, corev1.PodQOSGuaranteed},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p := podOf(t, test.change)
			if preparePod(t.Context(), resourcetest.Env(), p); p.Status.QOSClass != test.want {
				t.Errorf("class %s, want %s", p.Status.QOSClass, test.want)
			}
		})
	}
}

func resources(r string) string {
	return "spec: {containers: [{name: web, image: nginx, resources: {" + r + "}}]}"
}

// podOf makes a defaulted pod from the base and a merge patch.
func podOf(t *testing.T, change string) *corev1.Pod {
	t.Helper()
	return resourcetest.Object(t, pods.Kind(), basePod, change).(*corev1.Pod)
}

func TestPodWarnings(t *testing.T) {
	for _, test := range []struct {
		rule, change string
		want         []string
	}{
		{"a plain pod has none", ``, nil},
		{"a name with dots is no host name", `metadata: {name: a.b}`, []string{
			"metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"}},
		{"labels of nodes that are no longer set", `spec: {nodeSelector: {beta.kubernetes.io/os: linux}}`, []string{
			`spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`}},
		{"a selector that selects nothing", `spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]}`, []string{
			"spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"}},
		{"volumes that no longer work", `spec: {volumes: [{name: v, gitRepo: {repository: r}}]}`, []string{
			"spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+"}},
		{"a variable hides another", `spec: {containers: [{name: web, image: nginx, env: [{name: A, value: x}, {name: A, value: y}, {name: A, value: "$(A)z"}]}]}`, []string{
			`spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`}},
		{"a port is given twice", `spec: {containers: [{name: web, image: nginx, ports: [{containerPort: 80, name: a}, {containerPort: 80, name: b}]}]}`, []string{
			"spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"}},
		{"half a byte", `spec: {containers: [{name: web, image: nginx, resources: {requests: {memory: 500m}}}]}`, []string{
			`spec.containers[0].resources.requests[memory]: fractional byte value "500m" is invalid, must be an integer`}},
		{"half a byte of a claim", `spec: {volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 1500m}}}}}}]}`, []string{
			`spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer`}},
		{"a preference for what no node has", `spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: In, values: [b, "c d"]}]}}]}}}`, []string{
			`spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[1]: c d is invalid, a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`}},
		{"a file below a file", `spec: {volumes: [{name: v, configMap: {name: c, items: [{key: a, path: x}, {key: b, path: x/y}]}}]}`, []string{
			`volume "v" (ConfigMap "c"): overlapping paths: "x/y" with "x"`}},
		{"a secret for images without a name", `spec: {imagePullSecrets: [{name: ""}]}`, []string{
			`spec.imagePullSecrets[0].name: invalid empty name ""`}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			got := podspec.WarnPod(podOf(t, test.change), nil)
			if !apiequality.Semantic.DeepEqual(got, test.want) {
				t.Errorf("warnings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
	if got := podspec.WarnPod(podOf(t, `metadata: {name: a.b}`), podOf(t, ``)); got != nil {
		t.Errorf("an update warns: %q", got)
	}
}

func TestNodesCannotUndoWhatTheyDoNotKnow(t *testing.T) {
	old := podOf(t, `{metadata: {ownerReferences: [{apiVersion: v1, kind: X, name: x, uid: u}]}, status: {qosClass: Burstable, observedGeneration: 3, conditions: [{type: Ready, status: "False", observedGeneration: 2}]}}`)
	p := podOf(t, `status: {phase: Running, conditions: [{type: Ready, status: "True"}]}`)
	preparePodStatus(nil, p, old)
	if len(p.OwnerReferences) != 1 || p.Status.QOSClass != corev1.PodQOSBurstable || p.Status.ObservedGeneration != 3 || p.Status.Conditions[0].ObservedGeneration != 2 {
		t.Errorf("lost: %+v %+v", p.OwnerReferences, p.Status)
	}
}
