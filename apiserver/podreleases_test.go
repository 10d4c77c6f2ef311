package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
)

const podsOfDefault = "/api/v1/namespaces/default/pods"

// stageAt starts a server that serves a minor release of Kubernetes 1.
func stageAt(t *testing.T, minor int) stage {
	t.Helper()
	return newStage(t, "", func(o *options.Options) { o.Release = release.Release{Major: 1, Minor: minor} })
}

func parsed[T any](t *testing.T, body string) *T {
	t.Helper()
	obj := new(T)
	if err := json.Unmarshal([]byte(body), obj); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return obj
}

// Releases before 1.30 do not have the field that the annotation fills.
func TestAPodWithAnAppArmorAnnotationCanBeUpdatedAtEveryRelease(t *testing.T) {
	for minor, filled := range map[int]bool{28: false, 30: true} {
		t.Run(fmt.Sprint(minor), func(t *testing.T) {
			s := stageAt(t, minor)
			s.must(http.MethodPost, podsOfDefault, `{"metadata": {"name": "a", "annotations": {"container.apparmor.security.beta.kubernetes.io/c": "runtime/default"}},
				"spec": {"containers": [{"name": "c", "image": "i"}]}}`)
			pod := parsed[corev1.Pod](t, s.must(http.MethodGet, podsOfDefault+"/a", ""))
			if sc := pod.Spec.Containers[0].SecurityContext; (sc != nil && sc.AppArmorProfile != nil) != filled {
				t.Errorf("security context %+v", sc)
			}
			pod.Labels = map[string]string{"a": "b"}
			body, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			s.must(http.MethodPut, podsOfDefault+"/a", string(body))
		})
	}
}

// The source is the feature gate PodLevelResourcesFixDefaulting.
func TestPodLevelRequestsIncludeWhatAdmissionAddsSinceRelease137(t *testing.T) {
	for minor, want := range map[int]string{36: "", 37: "1100m"} {
		t.Run(fmt.Sprint(minor), func(t *testing.T) {
			s := stageAt(t, minor)
			s.must(http.MethodPost, "/api/v1/namespaces/default/limitranges",
				`{"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]}}`)
			pod := `{"metadata": {"name": "a"}, "spec": {"resources": {"limits": {"cpu": "4"}}, "containers": [
				{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}, {"name": "d", "image": "i"}]}}`
			// The plugin sees the range only some time after its creation.
			await(t, func() (int, string) {
				code, body := s.request("admin", http.MethodPost, podsOfDefault+"?dryRun=All", pod, nil)
				if code == http.StatusCreated && !strings.Contains(body, "100m") {
					code = http.StatusAccepted
				}
				return code, body
			}, map[bool]int{true: http.StatusCreated, false: http.StatusUnprocessableEntity}[want != ""])
			if want == "" {
				return
			}
			if got := parsed[corev1.Pod](t, s.must(http.MethodPost, podsOfDefault, pod)).Spec.Resources.Requests.Cpu().String(); got != want {
				t.Errorf("the pod requests %s, want %s", got, want)
			}
		})
	}
}

// The source is the feature gate HPAGeneration.
func TestAutoscalersHaveGenerationsSinceRelease137(t *testing.T) {
	const autoscalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
	for _, test := range []struct {
		minor int
		off   bool
		want  [3]int64
	}{{36, false, [3]int64{}}, {37, false, [3]int64{1, 2, 2}}, {37, true, [3]int64{}}} {
		t.Run(fmt.Sprint(test.minor, test.off), func(t *testing.T) {
			if test.off {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, gates.HPAGeneration, false)
			}
			s := stageAt(t, test.minor)
			for i, change := range []struct{ method, path, body string }{
				{http.MethodPost, autoscalers, `{"metadata": {"name": "a"}, "spec": {"maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}`},
				{http.MethodPatch, autoscalers + "/a", `{"spec": {"maxReplicas": 3}}`},
				{http.MethodPatch, autoscalers + "/a", `{"metadata": {"labels": {"a": "b"}}}`},
			} {
				h := parsed[autoscalingv2.HorizontalPodAutoscaler](t, s.must(change.method, change.path, change.body))
				if h.Generation != test.want[i] {
					t.Errorf("%s %s: generation %d, want %d", change.method, change.body, h.Generation, test.want[i])
				}
			}
		})
	}
}

// The plugin PodTopologyLabels reads the node of a pod before the pod is validated.
func TestAPodOfANodeWithAnImpossibleNameIsInvalid(t *testing.T) {
	s := stageAt(t, 36)
	code, body := s.request("admin", http.MethodPost, podsOfDefault, `{"metadata": {"name": "a"}, "spec": {"nodeName": "a/b", "containers": [{"name": "c", "image": "i"}]}}`, nil)
	if code != http.StatusUnprocessableEntity || !strings.Contains(body, "spec.nodeName: Invalid value") {
		t.Errorf("answered %d: %s", code, body)
	}
}
