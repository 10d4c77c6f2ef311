package quota

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	library "k8s.io/apiserver/pkg/quota/v1"
)

// cluster implements Extended.
type cluster struct {
	classes []*resourcev1.DeviceClass
	pods    []*corev1.Pod
	claims  []*resourcev1.ResourceClaim
	err     error
}

func (c cluster) Classes() ([]*resourcev1.DeviceClass, error) { return c.classes, c.err }

func (c cluster) Pod(_, name string) (*corev1.Pod, error) {
	for _, p := range c.pods {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (c cluster) Claims(string) ([]*resourcev1.ResourceClaim, error) { return c.claims, nil }

func exactly(class string, n int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: n}}
}

// devicesOf returns a claim, for the extended resources of a pod if the UID is not empty.
func devicesOf(name string, pod types.UID, requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	c.Spec.Devices.Requests = requests
	if pod != "" {
		c.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: pod, Controller: new(true)}}
	}
	return c
}

func created(c *resourcev1.ResourceClaim, second int64) *resourcev1.ResourceClaim {
	c.CreationTimestamp = metav1.Unix(second, 0)
	return c
}

func web(names string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"}}
	p.Spec.Containers = []corev1.Container{{Resources: resources("example.com/gpu=2", "")}}
	if names != "" {
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: names}
	}
	return p
}

func TestUsageOfResourceClaims(t *testing.T) {
	offered := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new("example.com/gpu")}}
	alternatives := resourcev1.DeviceRequest{FirstAvailable: []resourcev1.DeviceSubRequest{
		{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
		{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 4},
		{DeviceClassName: "net", AllocationMode: resourcev1.DeviceAllocationModeAll},
	}}
	const (
		one     = "count/resourceclaims.resource.k8s.io=1 "
		two     = "gpu.deviceclass.resource.k8s.io/devices=2 "
		implied = "requests.deviceclass.resource.kubernetes.io/gpu=2 "
	)
	for _, test := range []struct {
		rule     string
		extended Extended
		claim    *resourcev1.ResourceClaim
		want     string
	}{
		{"devices count by class", nil, devicesOf("c", "", exactly("gpu", 1), exactly("gpu", 1), exactly("net", 3)), one + two + "net.deviceclass.resource.k8s.io/devices=3"},
		{"of alternatives the most count", nil, devicesOf("c", "", alternatives), one + "gpu.deviceclass.resource.k8s.io/devices=4 net.deviceclass.resource.k8s.io/devices=32"},
		{"with the gate, as the resources of their class, too", cluster{classes: []*resourcev1.DeviceClass{offered}}, devicesOf("c", "", exactly("gpu", 2)),
			one + two + implied + "requests.example.com/gpu=2"},
		{"a class without a resource offers the one of its name", cluster{}, devicesOf("c", "", exactly("gpu", 2)), one + two + implied},
		{"what its pod requests counts with the pod", cluster{classes: []*resourcev1.DeviceClass{offered}, pods: []*corev1.Pod{web("c")}}, devicesOf("c", "u", exactly("gpu", 3)),
			one + "gpu.deviceclass.resource.k8s.io/devices=3 requests.deviceclass.resource.kubernetes.io/gpu=3 requests.example.com/gpu=1"},
		{"another claim of the pod counts", cluster{classes: []*resourcev1.DeviceClass{offered}, pods: []*corev1.Pod{web("other")}}, devicesOf("c", "u", exactly("gpu", 2)),
			one + two + implied + "requests.example.com/gpu=2"},
		{"the pod does not name its claim yet", cluster{classes: []*resourcev1.DeviceClass{offered}, pods: []*corev1.Pod{web("")},
			claims: []*resourcev1.ResourceClaim{created(devicesOf("later", "u"), 9), created(devicesOf("other", ""), 1)}}, created(devicesOf("c", "u", exactly("gpu", 2)), 5), one + two + implied},
		{"of several, the first is its own", cluster{classes: []*resourcev1.DeviceClass{offered}, pods: []*corev1.Pod{web("")},
			claims: []*resourcev1.ResourceClaim{created(devicesOf("earlier", "u"), 1)}}, devicesOf("c", "u", exactly("gpu", 2)), one + two + implied + "requests.example.com/gpu=2"},
		{"the pod was replaced", cluster{classes: []*resourcev1.DeviceClass{offered}, pods: []*corev1.Pod{web("c")}}, devicesOf("c", "v", exactly("gpu", 2)),
			one + two + implied + "requests.example.com/gpu=2"},
		{"the pod does not exist", cluster{classes: []*resourcev1.DeviceClass{offered}}, devicesOf("c", "u", exactly("gpu", 2)), one + two + implied + "requests.example.com/gpu=2"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			usage, err := ResourceClaims(nil, test.extended, func() time.Time { return now }).Usage(test.claim)
			if got := describe(usage); err != nil || got != strings.TrimSpace(test.want) {
				t.Errorf("got %s, %v\nwant %s", got, err, test.want)
			}
		})
	}
	if _, err := ResourceClaims(nil, cluster{err: errors.New("away")}, nil).Usage(devicesOf("c", "", exactly("gpu", 1))); err == nil {
		t.Error("a claim is measured without the device classes")
	}
}

func TestQuotasOfResourceClaims(t *testing.T) {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new("example.com/gpu")}}
	names := []corev1.ResourceName{
		"count/resourceclaims.resource.k8s.io", "gpu.deviceclass.resource.k8s.io/devices", "requests.example.com/gpu", "requests.deviceclass.resource.kubernetes.io/gpu",
		"requests.example.com/other", "requests.deviceclass.resource.kubernetes.io/other", "requests.cpu", "pods",
	}
	for _, test := range []struct {
		rule     string
		extended Extended
		want     int // the first ones
	}{{"devices by class", nil, 2}, {"and what classes offer", cluster{classes: []*resourcev1.DeviceClass{class}}, 4}} {
		got := ResourceClaims(nil, test.extended, nil).MatchingResources(names)
		if !slices.Equal(got, names[:test.want]) {
			t.Errorf("%s: got %v", test.rule, got)
		}
	}
	pods := Evaluators(Lists{}, nil)[0]
	if got := pods.MatchingResources(names); !slices.Equal(got, names[2:]) {
		t.Errorf("pods: got %v", got)
	}
	p := web("")
	p.Spec.Containers[0].Resources = resources("deviceclass.resource.kubernetes.io/gpu=2", "")
	if got := describe(library.Mask(PodUsage(p, now), names)); got != "pods=1 requests.deviceclass.resource.kubernetes.io/gpu=2" {
		t.Errorf("the resource of a class's own name: %s", got)
	}
}
