package podspec

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/resource/resourcetest"
)

// podOf returns a pod of one container, with a merge patch and the defaults of
// its spec.
func podOf(t *testing.T, change string) *corev1.Pod {
	t.Helper()
	kind := resource.Type[*corev1.Pod]{Name: "pods", Default: func(p *corev1.Pod) { Default(&p.Spec) }}.Kind()
	return resourcetest.Object(t, kind, `{metadata: {name: web}, spec: {containers: [{name: web, image: nginx}]}}`, change).(*corev1.Pod)
}

func TestPodWarnings(t *testing.T) {
	for _, test := range []struct {
		rule, change string
		want         []string
	}{
		{"a plain pod has none", ``, nil},
		{"a name with dots is not a DNS label", `metadata: {name: a.b}`, []string{
			"metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"}},
		{"a deprecated node label", `spec: {nodeSelector: {beta.kubernetes.io/os: linux}}`, []string{
			`spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`}},
		{"a selector that selects nothing", `spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]}`, []string{
			"spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"}},
		{"a deprecated volume type", `spec: {volumes: [{name: v, gitRepo: {repository: r}}]}`, []string{
			"spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+"}},
		{"a variable hides another", `spec: {containers: [{name: web, image: nginx, env: [{name: A, value: x}, {name: A, value: y}, {name: A, value: "$(A)z"}]}]}`, []string{
			`spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`}},
		{"a duplicate port", `spec: {containers: [{name: web, image: nginx, ports: [{containerPort: 80, name: a}, {containerPort: 80, name: b}]}]}`, []string{
			"spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"}},
		{"a fractional byte value", `spec: {containers: [{name: web, image: nginx, resources: {requests: {memory: 500m}}}]}`, []string{
			`spec.containers[0].resources.requests[memory]: fractional byte value "500m" is invalid, must be an integer`}},
		{"a fractional byte value of a volume claim", `spec: {volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 1500m}}}}}}]}`, []string{
			`spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer`}},
		{"a preference for an invalid label value", `spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: In, values: [b, "c d"]}]}}]}}}`, []string{
			`spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[1]: c d is invalid, a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`}},
		{"overlapping paths of files", `spec: {volumes: [{name: v, configMap: {name: c, items: [{key: a, path: x}, {key: b, path: x/y}]}}]}`, []string{
			`volume "v" (ConfigMap "c"): overlapping paths: "x/y" with "x"`}},
		{"an image pull secret without a name", `spec: {imagePullSecrets: [{name: ""}]}`, []string{
			`spec.imagePullSecrets[0].name: invalid empty name ""`}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			got := WarnPod(podOf(t, test.change), nil)
			if !slices.Equal(got, test.want) {
				t.Errorf("warnings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
	if got := WarnPod(podOf(t, `metadata: {name: a.b}`), podOf(t, ``)); got != nil {
		t.Errorf("an update warns: %q", got)
	}
}
