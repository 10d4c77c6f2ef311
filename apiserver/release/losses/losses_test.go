package losses

import (
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release"
)

func TestWhatAReleaseLoses(t *testing.T) {
	named := metav1.ObjectMeta{Name: "a", Namespace: "default"}
	service := func(change func(*corev1.ServiceSpec)) *corev1.Service {
		s := &corev1.Service{ObjectMeta: named, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, Ports: []corev1.ServicePort{{Port: 80}},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster), SessionAffinity: corev1.ServiceAffinityNone,
		}}
		change(&s.Spec)
		return s
	}
	level := func(lendable int32) *flowcontrolv1.PriorityLevelConfiguration {
		return &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: named, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To[int32](7), LendablePercent: &lendable,
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		}}
	}
	owned := *named.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "o", UID: "1", Controller: ptr.To(true)}}
	for _, tc := range []struct {
		name   string
		minor  int
		obj    runtime.Object
		losses string
	}{
		{"what it has", 16, &corev1.ConfigMap{ObjectMeta: named, Data: map[string]string{"a": "b"}}, ""},
		{"a field that is newer", 18, &corev1.ConfigMap{ObjectMeta: named, Immutable: ptr.To(true)}, ""},
		{"a field that it lacks", 17, &corev1.ConfigMap{ObjectMeta: named, Immutable: ptr.To(true)}, "immutable"},
		{"what the server computes or sets by default", 16, service(func(*corev1.ServiceSpec) {}), ""},
		{"another value than the default", 20, service(func(s *corev1.ServiceSpec) {
			s.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		}), "spec.internalTrafficPolicy"},
		{"two families", 19, service(func(s *corev1.ServiceSpec) { s.IPFamilies = append(s.IPFamilies, corev1.IPv6Protocol) }), "spec.clusterIPs spec.ipFamilies spec.ipFamilyPolicy"},
		{"a field in a list", 28, &corev1.Pod{ObjectMeta: named, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Lifecycle: &corev1.Lifecycle{StopSignal: ptr.To(corev1.SIGTERM)}}}}},
			"spec.containers[0].lifecycle.stopSignal"},
		{"a status", 16, &corev1.Pod{ObjectMeta: named, Status: corev1.PodStatus{HostIPs: []corev1.HostIP{{IP: "10.0.0.1"}}}}, ""},
		{"a kind that it lacks", 28, &storagev1.VolumeAttributesClass{ObjectMeta: named, DriverName: "d"}, WholeObject},
		{"a kind that is off", 31, &storagev1.VolumeAttributesClass{ObjectMeta: named, DriverName: "d"}, WholeObject},
		{"a kind in an older version", 16, &policyv1.PodDisruptionBudget{ObjectMeta: named, Spec: policyv1.PodDisruptionBudgetSpec{UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow)}}, "spec.unhealthyPodEvictionPolicy"},
		{"a kind that is converted", 18, &networkingv1.Ingress{ObjectMeta: named, Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s", Port: networkingv1.ServiceBackendPort{Number: 80}}}}}, ""},
		{"the default flow control", 16, &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "global-default", Annotations: map[string]string{"apf.kubernetes.io/autoupdate-spec": "true"}}}, ""},
		{"a default of a version that is converted", 22, level(0), ""},
		{"another value than this default", 22, level(50), "spec.limited.lendablePercent"},
		{"a user's flow control", 16, &flowcontrolv1.FlowSchema{ObjectMeta: named}, WholeObject},
		{"the API server's authority, which a controller publishes", 28, &certificatesv1.ClusterTrustBundle{ObjectMeta: named, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "kubernetes.io/kube-apiserver-serving"}}, ""},
		{"a user's authority", 28, &certificatesv1.ClusterTrustBundle{ObjectMeta: named, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "example.com/signer"}}, WholeObject},
		{"an agent's request of a certificate", 28, &certificatesv1.PodCertificateRequest{ObjectMeta: named}, ""},
		{"what a controller makes", 28, &storagev1.VolumeAttributesClass{ObjectMeta: owned, DriverName: "d"}, ""},
	} {
		finder, kind := finderAt(t, tc.minor, tc.obj)
		lost, err := finder.Of(kind, tc.obj)
		if err != nil || strings.Join(lost, " ") != tc.losses {
			t.Errorf("%s: %v, %v, want %s", tc.name, lost, err, tc.losses)
		}
	}
}

// finderAt returns the finder of a release, and the kind of an object.
func finderAt(t *testing.T, minor int, obj runtime.Object) (*Finder, *resource.Kind) {
	t.Helper()
	kinds := apis.Kinds()
	served, err := release.NewServed(release.Release{Major: 1, Minor: minor}, nil, kinds)
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := apis.NewScheme(kinds)
	if err != nil {
		t.Fatal(err)
	}
	gvks, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		for _, gvk := range gvks {
			if k.Hub == gvk {
				return New(served, scheme), k
			}
		}
	}
	t.Fatalf("%T is no hub", obj)
	return nil, nil
}

func TestObjectsOfAllVersionsAreRead(t *testing.T) {
	kinds := apis.Kinds()
	served, err := release.NewServed(release.Release{Major: 1, Minor: 16}, nil, kinds)
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := apis.NewScheme(kinds)
	if err != nil {
		t.Fatal(err)
	}
	finder := New(served, scheme)
	for _, k := range kinds {
		if !k.Stored() {
			continue
		}
		for _, gvk := range k.GVKs() {
			encoded := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"a"}}`, gvk.GroupVersion(), gvk.Kind)
			if _, err := finder.OfEncoded(k, []byte(encoded)); err != nil {
				t.Errorf("%v: %v", gvk, err)
			}
		}
	}
}
