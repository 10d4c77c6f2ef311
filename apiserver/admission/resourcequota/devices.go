package resourcequota

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/quota"
	"svc.dev/svc/internal/items"
)

// devices reads what the usage of resource claims depends on from the watch cache: claims are
// created seldom, and no informer is needed for them.
type devices struct{ *plugin }

var _ quota.Extended = devices{}

const fromCache = "0"

// Classes implements quota.Extended.
func (d devices) Classes() ([]*resourcev1.DeviceClass, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	list, err := d.Client.ResourceV1().DeviceClasses().List(ctx, metav1.ListOptions{ResourceVersion: fromCache})
	if err != nil {
		return nil, err
	}
	return items.Pointers(list.Items), nil
}

// Pod implements quota.Extended.
func (d devices) Pod(namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{ResourceVersion: fromCache})
}

// Claims implements quota.Extended.
func (d devices) Claims(namespace string) ([]*resourcev1.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	list, err := d.Client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{ResourceVersion: fromCache})
	if err != nil {
		return nil, err
	}
	return items.Pointers(list.Items), nil
}
