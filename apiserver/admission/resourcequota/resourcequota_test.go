package resourcequota

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	clienttesting "k8s.io/client-go/testing"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func register(plugins *admission.Plugins) {
	Register(plugins, func() (bool, error) { return true, nil })
}

// list reads "cpu=1 pods=2".
func list(text string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for _, part := range strings.Fields(text) {
		name, amount, _ := strings.Cut(part, "=")
		l[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return l
}

// quotaOf returns a quota whose usage is known.
func quotaOf(hard, used string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "quota", ResourceVersion: "7"},
		Spec:       corev1.ResourceQuotaSpec{Hard: list(hard)},
		Status:     corev1.ResourceQuotaStatus{Hard: list(hard), Used: list(used)},
	}
}

func pod(requests string) *corev1.Pod {
	return admissiontest.Pod(func(p *corev1.Pod) {
		if requests != "" {
			p.Spec.Containers[0].Resources.Requests = list(requests)
		}
	})
}

func claim(size string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", ResourceVersion: "3"}}
	c.Spec.Resources.Requests = list("storage=" + size)
	return c
}

func TestRequestsAreChargedToTheQuotaOrRefused(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "x"}
	scoped := quotaOf("pods=1", "pods=1")
	scoped.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotBestEffort}
	unknown := quotaOf("pods=1", "")
	for _, test := range []struct {
		rule        string
		quota       *corev1.ResourceQuota
		object, old runtime.Object
		dryRun      bool
		used        string
		err         string
	}{
		{rule: "a pod within the limits", quota: quotaOf("pods=2 requests.cpu=2", "pods=1 requests.cpu=1"), object: pod("cpu=1"), used: "pods=2 requests.cpu=2"},
		{rule: "a pod too many", quota: quotaOf("pods=1 requests.cpu=2", "pods=1 requests.cpu=1"), object: pod("cpu=1"),
			err: `pods "pod" is forbidden: exceeded quota: quota, requested: pods=1, used: pods=1, limited: pods=1`},
		{rule: "a pod that requests too much", quota: quotaOf("requests.cpu=2", "requests.cpu=1500m"), object: pod("cpu=1"),
			err: `pods "pod" is forbidden: exceeded quota: quota, requested: requests.cpu=1, used: requests.cpu=1500m, limited: requests.cpu=2`},
		{rule: "a pod without a request that the quota limits", quota: quotaOf("requests.cpu=2", "requests.cpu=0"), object: pod(""),
			err: `pods "pod" is forbidden: failed quota: quota: must specify requests.cpu for: main`},
		{rule: "a quota whose usage is not calculated yet", quota: unknown, object: pod(""), err: `pods "pod" is forbidden: status unknown for quota: quota, resources: pods`},
		{rule: "a pod out of the quota's scope", quota: scoped, object: pod("")},
		{rule: "a dry run is checked and not charged", quota: quotaOf("pods=2", "pods=1"), object: pod(""), dryRun: true},
		{rule: "a dry run that would exceed the quota", quota: quotaOf("pods=1", "pods=1"), object: pod(""), dryRun: true,
			err: `pods "pod" is forbidden: exceeded quota: quota, requested: pods=1, used: pods=1, limited: pods=1`},
		{rule: "a service's node ports", quota: quotaOf("services.nodeports=1", "services.nodeports=0"),
			object: &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 1}, {Port: 2}}}},
			err:    `services "x" is forbidden: exceeded quota: quota, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1`},
		{rule: "a claim that grows is charged by the difference", quota: quotaOf("requests.storage=3Gi", "requests.storage=1Gi"), object: claim("2Gi"), old: claim("1Gi"), used: "requests.storage=2Gi"},
		{rule: "a claim that grows too much", quota: quotaOf("requests.storage=3Gi", "requests.storage=1Gi"), object: claim("4Gi"), old: claim("1Gi"),
			err: `persistentvolumeclaims "claim" is forbidden: exceeded quota: quota, requested: requests.storage=3Gi, used: requests.storage=1Gi, limited: requests.storage=3Gi`},
		{rule: "objects are counted under their short name", quota: quotaOf("configmaps=1 count/configmaps=2", "configmaps=0 count/configmaps=0"),
			object: &corev1.ConfigMap{ObjectMeta: meta}, used: "configmaps=1 count/configmaps=1"},
		{rule: "and under count/", quota: quotaOf("count/secrets=1", "count/secrets=1"), object: &corev1.Secret{ObjectMeta: meta},
			err: `secrets "x" is forbidden: exceeded quota: quota, requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1`},
		{rule: "events are never limited", quota: quotaOf("count/events=0", "count/events=0"), object: &corev1.Event{ObjectMeta: meta}},
		{rule: "namespaces are not in themselves", quota: quotaOf("count/namespaces=0", "count/namespaces=0"), object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p := admissiontest.Server{Objects: []runtime.Object{test.quota}}.Start(t, register)
			err := p.Send(t, admissiontest.Request{Object: test.object, Old: test.old, DryRun: test.dryRun})
			if test.err != "" && (!apierrors.IsForbidden(err) || err.Error() != test.err) || test.err == "" && err != nil {
				t.Errorf("got %v, want %s", err, test.err)
			}
			got, err := p.Client.CoreV1().ResourceQuotas("ns").Get(t.Context(), "quota", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := test.quota.Status.Used
			if test.used != "" {
				want = list(test.used)
			}
			if fmt.Sprint(amounts(got.Status.Used)) != fmt.Sprint(amounts(want)) {
				t.Errorf("used %v, want %v", amounts(got.Status.Used), amounts(want))
			}
		})
	}
}

func TestDevicesOfAClaimAreChargedOnceIfItsPodRequestsThem(t *testing.T) {
	owner := pod("example.com/gpu=2")
	owner.UID = "u"
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2,
	}}}
	made := claim.DeepCopy()
	made.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
	made.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: owner.Name, UID: owner.UID, Controller: new(true)}}
	for _, test := range []struct {
		rule  string
		claim *resourcev1.ResourceClaim
		on    bool
		err   string
	}{
		{"a claim of its own", claim, true, "requested: requests.example.com/gpu=2, used: requests.example.com/gpu=2, limited: requests.example.com/gpu=3"},
		{"without the gate", claim, false, ""},
		{"the claim for the pod's extended resources", made, true, ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new("example.com/gpu")}}
			const hard = "gpu.deviceclass.resource.k8s.io/devices=2 requests.example.com/gpu=3"
			q := quotaOf(hard, "gpu.deviceclass.resource.k8s.io/devices=0 requests.example.com/gpu=2")
			p := admissiontest.Server{Objects: []runtime.Object{q, class, owner}}.Start(t, func(plugins *admission.Plugins) {
				Register(plugins, func() (bool, error) { return test.on, nil })
			})
			err := p.Send(t, admissiontest.Request{Object: test.claim})
			if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) || test.err == "" && err != nil {
				t.Errorf("got %v, want %q", err, test.err)
			}
			got, err := p.Client.CoreV1().ResourceQuotas("ns").Get(t.Context(), "quota", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if used := got.Status.Used["gpu.deviceclass.resource.k8s.io/devices"]; (used.Value() == 2) != (test.err == "") {
				t.Errorf("used %v", amounts(got.Status.Used))
			}
		})
	}
}

func amounts(l corev1.ResourceList) map[string]string {
	m := map[string]string{}
	for name, amount := range l {
		m[string(name)] = amount.String()
	}
	return m
}

func TestAfterAConflictTheStoredQuotaDecides(t *testing.T) {
	p := admissiontest.Server{Objects: []runtime.Object{quotaOf("pods=2", "pods=1")}}.Start(t, register)
	// Another server has admitted a pod, which the informer has not seen.
	stored := quotaOf("pods=2", "pods=2")
	stored.ResourceVersion = "8"
	p.Client.PrependReactor("update", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "quota", nil)
	})
	p.Client.PrependReactor("get", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) { return true, stored, nil })
	err := p.Send(t, admissiontest.Request{Object: pod("")})
	if err == nil || !strings.Contains(err.Error(), "exceeded quota: quota, requested: pods=1, used: pods=2, limited: pods=2") {
		t.Errorf("got %v", err)
	}
}

func TestAConfiguredResourceNeedsAQuota(t *testing.T) {
	const config = `
apiVersion: apiserver.config.k8s.io/v1
kind: ResourceQuotaConfiguration
limitedResources:
- resource: pods
  matchContains: [requests.cpu]
`
	p := admissiontest.Server{Config: strings.NewReader(config)}.Start(t, register)
	err := p.Send(t, admissiontest.Request{Object: pod("cpu=1")})
	if err == nil || err.Error() != `pods "pod" is forbidden: insufficient quota to consume: requests.cpu` {
		t.Errorf("got %v", err)
	}
	if err := p.Send(t, admissiontest.Request{Object: pod("")}); err != nil {
		t.Error(err)
	}
	_, err = admissiontest.Server{Config: strings.NewReader("kind: Other\napiVersion: v1\n")}.TryStart(t, register)
	if err == nil || !strings.Contains(err.Error(), "configuration of ResourceQuota") {
		t.Errorf("a wrong configuration: %v", err)
	}
}
