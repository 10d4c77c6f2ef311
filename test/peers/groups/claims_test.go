package groups

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// devices creates a class, and so many devices of a node.
func devices(node string, count int) step {
	return step{fmt.Sprintf("%d devices of %s", count, node), func(ctx context.Context, s *system) error {
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
		if _, err := s.client.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return err
		}
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}}
		slice.Spec = resourcev1.ResourceSliceSpec{Driver: "example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}}
		for i := range count {
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("gpu-", i)})
		}
		_, err := s.client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
		return err
	}}
}

// claim creates a resource claim of one device.
func claim(name string) step {
	return step{"claim " + name, func(ctx context.Context, s *system) error {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}}}
		_, err := s.client.ResourceV1().ResourceClaims(s.place).Create(ctx, c, metav1.CreateOptions{})
		return err
	}}
}

// uses lets a pod use a resource claim.
func uses(claim string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &claim}}
	}
}

// removeDevices deletes what devices and claim create.
func (s *system) removeDevices(ctx context.Context) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
	resources := s.client.ResourceV1()
	if err := resources.ResourceSlices().DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return err
	}
	return resources.DeviceClasses().DeleteCollection(ctx, now, metav1.ListOptions{})
}
