package limitranger

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

// list reads "cpu=1 memory=1Gi".
func list(text string) corev1.ResourceList {
	if text == "" {
		return nil
	}
	l := corev1.ResourceList{}
	for _, part := range strings.Fields(text) {
		name, amount, _ := strings.Cut(part, "=")
		l[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return l
}

func limitRange(name string, limits ...corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.LimitRangeSpec{Limits: limits}}
}

// pod returns a pod with one container of such requests and limits.
func pod(requests, limits string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := admissiontest.Pod(change...)
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
	return p
}

func initial(requests, limits string, policy *corev1.ContainerRestartPolicy) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
			Name: "init", RestartPolicy: policy, Resources: corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)},
		})
	}
}

func TestPodsGetTheDefaultsThatTheyLeaveOut(t *testing.T) {
	defaults := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: list("cpu=100m memory=64Mi"), Default: list("cpu=1")}
	for _, test := range []struct {
		rule     string
		ranges   []runtime.Object
		pod      *corev1.Pod
		requests string
		limits   string
		set      string
	}{
		{"without a LimitRange a pod stays as it is", nil, pod("", ""), "", "", ""},
		{"what is left out is set and listed", []runtime.Object{limitRange("a", defaults)}, pod("", ""), "cpu=100m memory=64Mi", "cpu=1",
			"LimitRanger plugin set: cpu, memory request for container main; cpu limit for container main"},
		{"what is given stays", []runtime.Object{limitRange("a", defaults)}, pod("cpu=2", "cpu=3 memory=1Gi"), "cpu=2 memory=64Mi", "cpu=3 memory=1Gi",
			"LimitRanger plugin set: memory request for container main"},
		{"init containers get them, too", []runtime.Object{limitRange("a", defaults)}, pod("cpu=1 memory=1", "cpu=1", initial("cpu=1 memory=1", "", nil)), "cpu=1 memory=1", "cpu=1",
			"LimitRanger plugin set: cpu limit for init container init"},
		{"the first LimitRange by name wins", []runtime.Object{
			limitRange("b", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: list("cpu=7")}),
			limitRange("a", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: list("cpu=5")}),
		}, pod("", ""), "", "cpu=5", "LimitRanger plugin set: cpu limit for container main"},
		{"limits of pods have no defaults for containers", []runtime.Object{limitRange("a", corev1.LimitRangeItem{Type: corev1.LimitTypePod, Default: list("cpu=5")})},
			pod("", ""), "", "", ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p := admissiontest.Server{Objects: test.ranges}.Start(t, Register)
			if err := p.Send(t, admissiontest.Request{Object: test.pod}); err != nil {
				t.Fatal(err)
			}
			got := test.pod.Spec.Containers[0].Resources
			if !equal(got.Requests, list(test.requests)) || !equal(got.Limits, list(test.limits)) {
				t.Errorf("got %v", got)
			}
			if set := test.pod.Annotations[annotation]; set != test.set {
				t.Errorf("annotation %q", set)
			}
		})
	}
}

func equal(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, amount := range a {
		if other, ok := b[name]; !ok || other.Cmp(amount) != 0 {
			return false
		}
	}
	return true
}

func TestLimits(t *testing.T) {
	container := func(min, max, ratio string) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: list(min), Max: list(max), MaxLimitRequestRatio: list(ratio)}
	}
	whole := func(min, max string) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: list(min), Max: list(max)}
	}
	always := ptr.To(corev1.ContainerRestartPolicyAlways)
	for _, test := range []struct {
		rule  string
		limit corev1.LimitRangeItem
		pod   *corev1.Pod
		err   string
	}{
		{"within all bounds", container("cpu=100m", "cpu=2", "cpu=4"), pod("cpu=500m", "cpu=2"), ""},
		{"a request below the minimum", container("cpu=100m", "", ""), pod("cpu=50m", ""), "minimum cpu usage per Container is 100m, but request is 50m"},
		{"no request", container("memory=1Mi", "", ""), pod("cpu=50m", ""), "minimum memory usage per Container is 1Mi.  No request is specified"},
		{"a limit below the minimum", container("cpu=100m", "", ""), pod("cpu=100m", "cpu=50m"), "minimum cpu usage per Container is 100m, but limit is 50m"},
		{"a limit above the maximum", container("", "cpu=1", ""), pod("", "cpu=2"), "maximum cpu usage per Container is 1, but limit is 2"},
		{"a request above the maximum", container("", "cpu=1", ""), pod("cpu=2", "cpu=1"), "maximum cpu usage per Container is 1, but request is 2"},
		{"no limit", container("", "cpu=1", ""), pod("cpu=1", ""), "maximum cpu usage per Container is 1.  No limit is specified"},
		{"a ratio above the maximum", container("", "", "cpu=1500m"), pod("cpu=1", "cpu=2"), "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000"},
		{"exactly the ratio", container("", "", "cpu=11"), pod("cpu=100m", "cpu=1100m"), ""},
		{"a ratio without a request", container("", "", "cpu=2"), pod("", "cpu=2"), "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"},
		{"a ratio without a limit", container("", "", "cpu=2"), pod("cpu=1", ""), "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0"},
		{"init containers are containers", container("", "cpu=1", ""), pod("", "cpu=1", initial("", "cpu=3", nil)), "maximum cpu usage per Container is 1, but limit is 3"},
		{"all violations are listed", container("cpu=1 memory=1Gi", "", ""), pod("", ""),
			"[minimum cpu usage per Container is 1.  No request is specified, minimum memory usage per Container is 1Gi.  No request is specified]"},
		{"a pod's containers add up", whole("", "cpu=3"), pod("", "cpu=2", func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b", Resources: corev1.ResourceRequirements{Limits: list("cpu=2")}})
		}), "maximum cpu usage per Pod is 3, but limit is 4"},
		{"so do sidecars", whole("", "cpu=3"), pod("", "cpu=2", initial("", "cpu=2", always)), "maximum cpu usage per Pod is 3, but limit is 4"},
		{"init containers count one at a time", whole("", "cpu=3"), pod("", "cpu=2", initial("", "cpu=2", nil)), ""},
		{"overhead does not count", whole("", "cpu=2"), pod("cpu=1", "cpu=2", func(p *corev1.Pod) { p.Spec.Overhead = list("cpu=2") }), ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p := admissiontest.Server{Objects: []runtime.Object{limitRange("a", test.limit)}}.Start(t, Register)
			expect(t, p.Send(t, admissiontest.Request{Object: test.pod}), `pods "pod" is forbidden: `, test.err)
		})
	}
}

func expect(t *testing.T, err error, prefix, message string) {
	t.Helper()
	switch {
	case message == "" && err != nil:
		t.Error(err)
	case message != "" && (!apierrors.IsForbidden(err) || err.Error() != prefix+message):
		t.Errorf("got %v, want %s", err, message)
	}
}

func TestClaimsAreLimitedWheneverTheirRequestChanges(t *testing.T) {
	claim := func(size string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim"}}
		c.Spec.Resources.Requests = list(size)
		return c
	}
	deleted := claim("storage=1Gi")
	deleted.DeletionTimestamp = &metav1.Time{}
	limit := corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Min: list("storage=1Gi"), Max: list("storage=2Gi"), MaxLimitRequestRatio: list("storage=1")}
	for _, test := range []struct {
		rule       string
		claim, old *corev1.PersistentVolumeClaim
		status     bool
		err        string
	}{
		{"within the bounds", claim("storage=2Gi"), nil, false, ""},
		{"too small", claim("storage=1Mi"), nil, false, "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"},
		{"too large", claim("storage=3Gi"), nil, false, "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"},
		{"grown too large", claim("storage=3Gi"), claim("storage=2Gi"), false, "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"},
		{"a status", claim("storage=3Gi"), claim("storage=3Gi"), true, ""},
		{"a claim that is being deleted", claim("storage=3Gi"), deleted, false, ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p := admissiontest.Server{Objects: []runtime.Object{limitRange("a", limit)}}.Start(t, Register)
			r := admissiontest.Request{Object: test.claim}
			if test.old != nil {
				r.Old = test.old
			}
			if test.status {
				r.Subresource = "status"
			}
			expect(t, p.Send(t, r), `persistentvolumeclaims "claim" is forbidden: `, test.err)
		})
	}
}

func TestUpdatesOfPodsAreNotLimited(t *testing.T) {
	p := admissiontest.Server{Objects: []runtime.Object{limitRange("a", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: list("cpu=1"), Default: list("cpu=1")})}}.Start(t, Register)
	for _, subresource := range []string{"", "status", "ephemeralcontainers"} {
		updated := pod("cpu=3", "cpu=3")
		if err := p.Send(t, admissiontest.Request{Object: updated, Old: pod("cpu=3", "cpu=3"), Subresource: subresource}); err != nil || updated.Annotations != nil {
			t.Errorf("%s: %v, %v", subresource, err, updated.Annotations)
		}
	}
	err := p.Send(t, admissiontest.Request{Object: pod("cpu=3", "cpu=3"), Old: pod("cpu=1", "cpu=1"), Subresource: "resize"})
	expect(t, err, `pods "pod" is forbidden: `, "maximum cpu usage per Container is 1, but limit is 3")
}

// TestANamespaceWithoutRangesIsReadLive has an informer that never sees anything.
func TestANamespaceWithoutRangesIsReadLive(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	client := fake.NewClientset()
	p := newPlugin(clock)
	p.SetExternalKubeClientSet(client)
	p.SetExternalKubeInformerFactory(informers.NewSharedInformerFactory(client, 0))
	p.SetReadyFunc(func() bool { return true })
	admit := func() string {
		created := pod("", "")
		if err := p.Admit(t.Context(), (admissiontest.Request{Object: created}).Attributes(t), nil); err != nil {
			t.Fatal(err)
		}
		return created.Annotations[annotation]
	}
	if got := admit(); got != "" {
		t.Errorf("set %s without a LimitRange", got)
	}
	made := limitRange("a", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: list("cpu=1")})
	if _, err := client.CoreV1().LimitRanges("ns").Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	reads := len(client.Actions())
	if admit(); len(client.Actions()) != reads {
		t.Error("a second request reads the namespace again")
	}
	clock.Step(liveTTL + time.Second)
	if got := admit(); got == "" {
		t.Error("the new LimitRange is not found")
	}
}
