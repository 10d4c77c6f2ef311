package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apis/resource/resourcetest"
)

func requirements(t *testing.T, text string) *corev1.ResourceRequirements {
	t.Helper()
	r := &corev1.ResourceRequirements{}
	if err := yaml.UnmarshalStrict([]byte(text), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func wantPodResources(t *testing.T, p *corev1.Pod, want string) {
	t.Helper()
	if want := requirements(t, want); !apiequality.Semantic.DeepEqual(p.Spec.Resources, want) {
		t.Errorf("pod-level resources (-want +got):\n%s", diff.Diff(want, p.Spec.Resources))
	}
}

func TestPodLevelResourcesAreCompletedFromContainersThatAdmissionHasChanged(t *testing.T) {
	for _, test := range []struct {
		rule, resources string
		web, injected   string // the resources of the containers
		want            string
	}{
		{
			"requests are the sum of the containers'", `limits: {cpu: 4}`, `requests: {cpu: 1}`, `requests: {cpu: 100m}`,
			`{requests: {cpu: 1100m}, limits: {cpu: 4}}`,
		},
		{
			"a request is the limit where containers request nothing", `limits: {cpu: 4, memory: 1Gi}`, `requests: {cpu: 1}`, `{}`,
			`{requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 4, memory: 1Gi}}`,
		},
		{
			"a pod with requests alone gets those of other resources", `requests: {cpu: 1}`, `requests: {memory: 1Gi}`, `{}`,
			`requests: {cpu: 1, memory: 1Gi}`,
		},
		{
			"limits are the sum of the containers', if all have one", `requests: {cpu: 1, memory: 1Gi}`,
			`{requests: {cpu: 100m}, limits: {cpu: 2, memory: 2Gi}}`, `{requests: {cpu: 100m}, limits: {cpu: 1}}`,
			`{requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 3}}`,
		},
		{
			"and not less than the request", `requests: {cpu: 5}`,
			`{requests: {cpu: 100m}, limits: {cpu: 2}}`, `{requests: {cpu: 100m}, limits: {cpu: 1}}`,
			`{requests: {cpu: 5}, limits: {cpu: 5}}`,
		},
		{
			"what is set stays", `{requests: {cpu: 2}, limits: {cpu: 4}}`,
			`{requests: {cpu: 100m}, limits: {cpu: 2}}`, `{requests: {cpu: 100m}, limits: {cpu: 1}}`,
			`{requests: {cpu: 2}, limits: {cpu: 4}}`,
		},
		{
			"huge pages are limited and requested", `requests: {cpu: 1}`,
			`{requests: {cpu: 1, hugepages-2Mi: 2Mi}, limits: {hugepages-2Mi: 2Mi}}`, `{}`,
			`{requests: {cpu: 1, hugepages-2Mi: 2Mi}, limits: {hugepages-2Mi: 2Mi}}`,
		},
		{"empty ones stay empty", `{}`, `{requests: {cpu: 1}, limits: {cpu: 1}}`, `{requests: {cpu: 1}, limits: {cpu: 1}}`, `{}`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p := podOf(t, `spec: {resources: {`+trimBraces(test.resources)+`}, containers: [{name: web, image: nginx, resources: {`+trimBraces(test.web)+`}}]}`)
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "injected", Image: "i", Resources: *requirements(t, test.injected)})
			preparePod(t.Context(), resourcetest.Env(), p)
			wantPodResources(t, p, test.want)
		})
	}
}

// trimBraces returns the content of a flow mapping.
func trimBraces(text string) string {
	if text[0] == '{' {
		return text[1 : len(text)-1]
	}
	return text
}

func TestTheQOSClassIsThatOfCompletedPodLevelResources(t *testing.T) {
	p := podOf(t, `spec: {resources: {requests: {cpu: 1, memory: 1Gi}}, containers: [{name: web, image: nginx, resources: {limits: {cpu: 1, memory: 1Gi}}}]}`)
	if preparePod(t.Context(), resourcetest.Env(), p); p.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("class %s of %+v", p.Status.QOSClass, p.Spec.Resources)
	}
}

func TestAnUpdateThatLeavesOutPodLevelResourcesKeepsThemWithTheGate(t *testing.T) {
	const resources = `{requests: {cpu: 1}, limits: {cpu: 2}}`
	for _, on := range []bool{false, true} {
		env := resourcetest.Env()
		env.PodResources = on
		p, old := podOf(t, ``), podOf(t, `spec: {resources: `+resources+`}`)
		pods.Kind().PrepareUpdate(t.Context(), env, p, old)
		if errs := validatePodUpdate(p, old); (len(errs) == 0) != on {
			t.Errorf("gate %t: %v", on, errs)
		}
		if on {
			wantPodResources(t, p, resources)
		}
		p = podOf(t, ``)
		keepAllButResources(env, p, old)
		if errs := validateResize(p, old); (len(errs) == 0) != on {
			t.Errorf("gate %t: resize: %v", on, errs)
		}
		if on {
			wantPodResources(t, p, resources)
		}
	}
}

func TestAResizeCompletesPodLevelResourcesWithTheGate(t *testing.T) {
	const containers = `containers: [{name: web, image: nginx, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 2Gi}}}]`
	for on, want := range map[bool]string{
		false: `{requests: {cpu: 1}, limits: {cpu: 3}}`,
		true:  `{requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 3, memory: 2Gi}}`,
	} {
		env := resourcetest.Env()
		env.PodResources = on
		p, old := podOf(t, `spec: {resources: {requests: {cpu: 1}, limits: {cpu: 3}}, `+containers+`}`), podOf(t, `spec: {`+containers+`}`)
		keepAllButResources(env, p, old)
		wantPodResources(t, p, want)
	}
}

func TestAResizeChangesPodLevelResourcesOnlyWithTheGate(t *testing.T) {
	for on, want := range map[bool]string{true: `{requests: {cpu: 2}, limits: {cpu: 2}}`, false: `{requests: {cpu: 1}, limits: {cpu: 1}}`} {
		env := resourcetest.Env()
		env.ResizePodResources = on
		p, old := podOf(t, `spec: {resources: {requests: {cpu: 2}, limits: {cpu: 2}}}`), podOf(t, `spec: {resources: {requests: {cpu: 1}, limits: {cpu: 1}}}`)
		keepAllButResources(env, p, old)
		wantPodResources(t, p, want)
	}
}
