package source

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const web = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: c, image: img, ports: [{containerPort: 80}]}
`

// static returns the pod of a manifest on node n1.
func static(manifest string, from origin) (*corev1.Pod, error) {
	m, err := parse([]byte(manifest))
	if err != nil {
		return nil, err
	}
	rules, err := newPodRules()
	if err != nil {
		return nil, err
	}
	return m.pods[0], rules.complete(m.pods[0], from)
}

func TestAStaticPodGetsItsNameUIDAndDefaults(t *testing.T) {
	pod, err := static(web, origin{node: "n1", path: "/m/web.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if pod.Name != "web-n1" || pod.Namespace != "default" || pod.Spec.NodeName != "n1" || pod.Status.Phase != corev1.PodPending {
		t.Errorf("got %s/%s on %s, %s", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.Phase)
	}
	if len(pod.UID) != 32 || pod.Annotations[HashAnnotation] != string(pod.UID) {
		t.Errorf("UID %q, annotations %v", pod.UID, pod.Annotations)
	}
	if got := pod.Spec.Tolerations; len(got) != 1 || got[0] != (corev1.Toleration{Operator: "Exists", Effect: "NoExecute"}) {
		t.Errorf("tolerations %v", got)
	}
	if c := pod.Spec.Containers[0]; c.ImagePullPolicy != corev1.PullAlways || c.Ports[0].Protocol != corev1.ProtocolTCP || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("defaults are missing: %v", c)
	}
	if pod, err = static(web, origin{node: "n1", url: "http://x"}); err != nil || len(pod.Spec.Tolerations) != 0 {
		t.Errorf("of the URL: tolerations %v, %v", pod.Spec.Tolerations, err)
	}
}

func TestAStaticPodRequestsWhatItsPodLevelLimitsAre(t *testing.T) {
	pod, err := static(`apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  resources: {limits: {cpu: "1", memory: 1Gi}}
  containers:
  - {name: c, image: img}
`, origin{node: "n1", path: "/m/web.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if r := pod.Spec.Resources; !r.Requests.Cpu().Equal(r.Limits[corev1.ResourceCPU]) || !r.Requests.Memory().Equal(r.Limits[corev1.ResourceMemory]) {
		t.Errorf("requests %v", r.Requests)
	}
}

func TestAStaticPodsUIDDependsOnItsManifestAndOrigin(t *testing.T) {
	here := origin{node: "n", path: "/m/web.yaml"}
	uid := func(manifest string, from origin) types.UID {
		t.Helper()
		pod, err := static(manifest, from)
		if err != nil {
			t.Fatal(err)
		}
		return pod.UID
	}
	first := uid(web, here)
	same := map[string]types.UID{
		"again":    uid(web, here),
		"comments": uid("# a comment\n"+web, here),
	}
	for what, got := range same {
		if got != first {
			t.Errorf("%s: another UID", what)
		}
	}
	seen := map[types.UID]string{first: "the first"}
	for what, got := range map[string]types.UID{
		"image": uid(strings.ReplaceAll(web, "img", "img:2"), here),
		"label": uid(strings.ReplaceAll(web, "app: web", "app: other"), here),
		"file":  uid(web, origin{node: "n", path: "/m/other.yaml"}),
		"node":  uid(web, origin{node: "m", path: "/m/web.yaml"}),
		"url":   uid(web, origin{node: "n", url: "/m/web.yaml"}),
	} {
		if other, ok := seen[got]; ok {
			t.Errorf("another %s, yet the UID of %s", what, other)
		}
		seen[got] = what
	}
	if got := uid(strings.ReplaceAll(web, "name: web,", "name: web, uid: mine,"), here); got != "mine" {
		t.Errorf("the UID that is written is %s", got)
	}
}

func TestInvalidManifestsAreRefused(t *testing.T) {
	pod := func(spec string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}], " + spec + "}\n"
	}
	for name, c := range map[string]struct{ manifest, says string }{
		"empty":             {" \n\t", "it is empty: want a Pod"},
		"half of YAML":      {"apiVersion: v1\nkind: Pod\nmetadata: {name: web, la", "neither YAML nor JSON"},
		"half of JSON":      {`{"apiVersion": "v1", "kind": "Po`, "neither YAML nor JSON"},
		"binary":            {"\x00\x01\x02", "neither YAML nor JSON"},
		"a list":            {"- a\n- b\n", "invalid object"},
		"no kind":           {"metadata: {name: x}", "want apiVersion: v1, kind: Pod"},
		"another kind":      {"apiVersion: apps/v1\nkind: Deployment\n", `apiVersion "apps/v1", kind "Deployment"`},
		"a wrong type":      {strings.ReplaceAll(web, "containerPort: 80", "containerPort: eighty"), "containerPort"},
		"no name":           {strings.ReplaceAll(web, "name: web,", ""), "metadata.name: Required value"},
		"a wrong name":      {strings.ReplaceAll(web, "name: web,", "name: Web_1,"), "metadata.name: Invalid value"},
		"no directory":      {strings.ReplaceAll(web, "name: web,", "name: web, uid: ../../etc,"), "metadata.uid: Invalid value"},
		"no log of its own": {strings.ReplaceAll(web, "name: web,", "name: web, uid: a_b,"), "metadata.uid: Invalid value"},
		"no containers":     {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {}\n", "spec.containers: Required value"},
		"no image":          {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n", "spec.containers[0].image: Required value"},
		"a service account": {pod("serviceAccountName: x"), "static pods may not reference serviceaccounts"},
		"a pull secret":     {pod("imagePullSecrets: [{name: s}]"), "static pods may not reference secrets"},
		"a secret volume":   {pod("volumes: [{name: v, secret: {secretName: s}}]"), "static pods may not reference secrets (via secret volumes)"},
		"a config map":      {pod("volumes: [{name: v, configMap: {name: s}}]"), "static pods may not reference configmaps (via configmap volumes)"},
		"a claim":           {pod("volumes: [{name: v, persistentVolumeClaim: {claimName: s}}]"), "static pods may not reference persistentvolumeclaims"},
		"a projected one":   {pod("volumes: [{name: v, projected: {sources: [{configMap: {name: s}}]}}]"), "configmaps (via projected volumes)"},
		"a secret variable": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, env: [{name: V, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}",
			"static pods may not reference secrets",
		},
		"variables of a config map": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {initContainers: [{name: i, image: i, envFrom: [{configMapRef: {name: s}}]}], containers: [{name: c, image: i}]}",
			"static pods may not reference configmaps",
		},
	} {
		if _, err := static(c.manifest, origin{node: "n", path: "/m"}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, not %q", name, err, c.says)
		}
	}
}

func TestIgnoredFieldsOfAManifestAreLogged(t *testing.T) {
	for name, c := range map[string]struct{ manifest, says string }{
		"an unknown field": {strings.ReplaceAll(web, "name: c,", "name: c, colour: red,"), `unknown field "spec.containers[0].colour"`},
		"a field twice":    {web + "  nodeSelector: {a: b}\n  nodeSelector: {c: d}\n", "nodeSelector"},
		"a second pod":     {web + "---\n" + web, "only the first"},
	} {
		m, err := parse([]byte(c.manifest))
		if err != nil || !strings.Contains(strings.Join(m.warnings, "; "), c.says) {
			t.Errorf("%s: %v, %v", name, m.warnings, err)
		}
	}
	for name, manifest := range map[string]string{
		"plain": web, "with separators": "---\n# first\n---" + web + "---\n# nothing\n",
		"JSON": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
	} {
		if m, err := parse([]byte(manifest)); err != nil || len(m.warnings) > 0 || len(m.pods) != 1 || m.pods[0].Name != "web" {
			t.Errorf("%s: %v, %v", name, m.warnings, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add(web)
	f.Add(web + "---\n" + web)
	f.Add(`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"}},null]}`)
	f.Add("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {volumes: [{name: v, projected: {}}], initContainers: [{}]}")
	rules, err := newPodRules()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parse([]byte(text))
		if err != nil {
			return
		}
		for _, pod := range m.pods {
			before := pod.DeepCopy()
			if rules.complete(pod, origin{node: "n", path: "/m"}) == nil {
				if err := rules.complete(before, origin{node: "n", path: "/m"}); err != nil || before.UID != pod.UID {
					t.Errorf("not the same again: %v", err)
				}
			}
		}
	})
}
