package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	library "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/utils/ptr"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestPodUsage(t *testing.T) {
	const all = "count/pods=1 cpu=500m hugepages-2Mi=4Mi limits.cpu=1 limits.memory=1Gi memory=512Mi pods=1 " +
		"requests.cpu=500m requests.example.com/gpu=2 requests.hugepages-2Mi=4Mi requests.memory=512Mi"
	for _, test := range []struct {
		rule   string
		change func(*corev1.Pod)
		want   string
	}{
		{"requests and limits count under their names in quotas", nil, all},
		{"containers add up; init containers count as far as they need more", func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Resources: resources("cpu=500m", "")})
			p.Spec.InitContainers = []corev1.Container{{Resources: resources("cpu=3", "")}}
			p.Spec.Containers[0].Resources = resources("cpu=500m", "")
		}, "count/pods=1 cpu=3 pods=1 requests.cpu=3"},
		{"so does what the runtime class adds", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = resources("cpu=500m", "")
			p.Spec.Overhead = list("cpu=100m")
		}, "count/pods=1 cpu=600m pods=1 requests.cpu=600m"},
		{"a pod's own resources count instead of its containers'", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = resources("cpu=500m", "")
			p.Spec.Resources = ptr.To(resources("cpu=2", "cpu=4"))
		}, "count/pods=1 cpu=2 limits.cpu=4 pods=1 requests.cpu=2"},
		{"ephemeral storage is limited, too", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = resources("ephemeral-storage=1Gi", "ephemeral-storage=2Gi")
		}, "count/pods=1 ephemeral-storage=1Gi limits.ephemeral-storage=2Gi pods=1 requests.ephemeral-storage=1Gi"},
		{"a pod that has ended takes only its place in storage", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "count/pods=1"},
		{"a pod that is being deleted takes all", func(p *corev1.Pod) { deleted(p, now) }, all},
		{"until its grace period is over, whatever its node does", func(p *corev1.Pod) { deleted(p, now.Add(-31*time.Second)) }, "count/pods=1"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Resources: resources("cpu=500m memory=512Mi hugepages-2Mi=4Mi example.com/gpu=2", "cpu=1 memory=1Gi hugepages-2Mi=4Mi example.com/gpu=2"),
			}}}}
			if test.change != nil {
				test.change(pod)
			}
			if diff := cmp.Diff(test.want, describe(PodUsage(pod, now))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestScopes(t *testing.T) {
	scope := func(name corev1.ResourceQuotaScope) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: corev1.ScopeSelectorOpExists}
	}
	classes := func(o corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: o, Values: values}
	}
	plain := &corev1.Pod{}
	bounded := &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: ptr.To(int64(5))}}
	asking := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: resources("cpu=1", "")}}}}
	told := &corev1.Pod{Status: corev1.PodStatus{QOSClass: corev1.PodQOSBurstable}}
	high := &corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: "high"}}
	affine := &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}}}},
	}}}}
	for _, test := range []struct {
		rule  string
		scope corev1.ScopedResourceSelectorRequirement
		in    []*corev1.Pod
		out   []*corev1.Pod
	}{
		{"pods with a deadline terminate", scope(corev1.ResourceQuotaScopeTerminating), []*corev1.Pod{bounded}, []*corev1.Pod{plain}},
		{"others do not", scope(corev1.ResourceQuotaScopeNotTerminating), []*corev1.Pod{plain}, []*corev1.Pod{bounded}},
		{"pods that ask for nothing get what is left", scope(corev1.ResourceQuotaScopeBestEffort), []*corev1.Pod{plain}, []*corev1.Pod{asking, told}},
		{"others get what they ask for", scope(corev1.ResourceQuotaScopeNotBestEffort), []*corev1.Pod{asking, told}, []*corev1.Pod{plain}},
		{"pods have a priority class or not", scope(corev1.ResourceQuotaScopePriorityClass), []*corev1.Pod{high}, []*corev1.Pod{plain}},
		{"a certain one", classes(corev1.ScopeSelectorOpIn, "high", "low"), []*corev1.Pod{high}, []*corev1.Pod{plain}},
		{"any other, or none", classes(corev1.ScopeSelectorOpNotIn, "high"), []*corev1.Pod{plain}, []*corev1.Pod{high}},
		{"none", classes(corev1.ScopeSelectorOpDoesNotExist), []*corev1.Pod{plain}, []*corev1.Pod{high}},
		{"pods with terms on pods of other namespaces", scope(corev1.ResourceQuotaScopeCrossNamespacePodAffinity), []*corev1.Pod{affine}, []*corev1.Pod{plain}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			for _, pod := range slices.Concat(test.in, test.out) {
				got, err := podInScope(test.scope, pod)
				if err != nil || got != slices.Contains(test.in, pod) {
					t.Errorf("in scope: %t, %v: %+v", got, err, pod.Spec)
				}
			}
		})
	}
}

func TestServiceUsage(t *testing.T) {
	two := []corev1.ServicePort{{Port: 80}, {Port: 81, NodePort: 30081}}
	for _, test := range []struct {
		rule string
		spec corev1.ServiceSpec
		want string
	}{
		{"a service is one", corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: two}, "count/services=1 services=1 services.loadbalancers=0 services.nodeports=0"},
		{"a node port service has all its ports on the nodes", corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: two}, "count/services=1 services=1 services.loadbalancers=0 services.nodeports=2"},
		{"so has a load balancer", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: two}, "count/services=1 services=1 services.loadbalancers=1 services.nodeports=2"},
		{"unless it wants none: then those that it names", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: two, AllocateLoadBalancerNodePorts: ptr.To(false)},
			"count/services=1 services=1 services.loadbalancers=1 services.nodeports=1"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			usage, err := services().Usage(&corev1.Service{Spec: test.spec})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, describe(usage)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestClaimUsage(t *testing.T) {
	claim := func(class, asked, given string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{}
		c.Spec.StorageClassName = &class
		c.Spec.Resources.Requests = list(asked)
		c.Status.AllocatedResources = list(given)
		return c
	}
	for _, test := range []struct {
		rule  string
		claim *corev1.PersistentVolumeClaim
		want  string
	}{
		{"a claim is one, and as large as it asks for", claim("", "storage=3Gi", ""), "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=3Gi"},
		{"it counts for its class, too", claim("gold", "storage=3Gi", ""),
			"count/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/requests.storage=3Gi persistentvolumeclaims=1 requests.storage=3Gi"},
		{"one that was given more takes more", claim("", "storage=3Gi", "storage=5Gi"), "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=5Gi"},
		{"bytes are whole", claim("", "storage=1500m", ""), "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=2"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if diff := cmp.Diff(test.want, describe(claimUsage(test.claim))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCounted(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"count/deployments.apps", "deployments.apps"},
		{"count/widgets.example.com", "widgets.example.com"},
		{"count/endpoints", "endpoints"},
		{"configmaps", "configmaps, configmaps"},
		{"count/configmaps", "configmaps, configmaps"},
		{"count/pods", "no"}, {"pods", "no"}, {"requests.cpu", "no"}, {"count/events.events.k8s.io", "no"}, {"services", "no"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := "no"
			if r, alias, ok := Counted(corev1.ResourceName(test.name)); ok {
				got = r.String()
				if alias != "" {
					got += ", " + string(alias)
				}
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestEvaluators calculates a quota as the library does.
func TestEvaluators(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: resources("cpu=1 example.com/gpu=1", "")}}}}
	listed := func(objects ...runtime.Object) generic.ListFuncByNamespace {
		return func(string) ([]runtime.Object, error) { return objects, nil }
	}
	registry := generic.NewRegistry(Evaluators(Lists{
		Pods:                   listed(pod, pod, &corev1.Pod{}),
		Services:               listed(&corev1.Service{}),
		PersistentVolumeClaims: listed(&corev1.PersistentVolumeClaim{}),
	}, func() time.Time { return now }))
	hard := list("pods=9 requests.cpu=9 requests.example.com/gpu=9 limits.cpu=9 services=9 persistentvolumeclaims=9 secrets=9 example.com/other=9")
	for _, test := range []struct {
		rule   string
		scopes []corev1.ResourceQuotaScope
		want   string
	}{
		{"all that is limited is measured", nil, "limits.cpu=0 persistentvolumeclaims=1 pods=3 requests.cpu=2 requests.example.com/gpu=2 services=1"},
		{"in a scope, what is in it", []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort},
			"limits.cpu=0 persistentvolumeclaims=0 pods=1 requests.cpu=0 requests.example.com/gpu=0 services=0"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			used, err := library.CalculateUsage("default", test.scopes, hard, registry, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, describe(used)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPodConstraints(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers:     []corev1.Container{{Name: "a", Resources: resources("cpu=1", "")}, {Name: "b"}},
		InitContainers: []corev1.Container{{Name: "i"}},
	}}
	required := []corev1.ResourceName{corev1.ResourceRequestsCPU, corev1.ResourceLimitsMemory, corev1.ResourcePods, corev1.ResourceRequestsEphemeralStorage}
	if err := podConstraints(required, pod); err == nil || err.Error() != "must specify limits.memory for: a,b,i; requests.cpu for: b,i" {
		t.Errorf("error %v", err)
	}
	pod.Spec.Resources = ptr.To(resources("cpu=1", "memory=1Gi"))
	if err := podConstraints(required, pod); err != nil {
		t.Errorf("a pod that says it as a whole: %v", err)
	}
}

func resources(requests, limits string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
}

// list reads "cpu=1 memory=1Gi".
func list(text string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for _, word := range strings.Fields(text) {
		name, amount, _ := strings.Cut(word, "=")
		l[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return l
}

// describe is the inverse of list.
func describe(l corev1.ResourceList) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		amount := l[name]
		words = append(words, fmt.Sprintf("%s=%s", name, amount.String()))
	}
	return strings.Join(words, " ")
}

func deleted(p *corev1.Pod, at time.Time) {
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: at}, ptr.To(int64(30))
}
