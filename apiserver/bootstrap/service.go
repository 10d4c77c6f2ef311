package bootstrap

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// serviceName is the name of the Service by which pods reach the server, and of its
// Endpoints and EndpointSlice.
const serviceName = "kubernetes"

// Service is the kubernetes Service.
type Service struct {
	// ClusterIP is its address, by convention the FirstAddress of the range.
	ClusterIP netip.Addr
	// Port is the Service's port, usually 443; TargetPort is the server's.
	Port, TargetPort int32
	// NodePort, if not zero, is its port on every node.
	NodePort int32
}

// FirstAddress returns the first address of a range that can be allocated.
func FirstAddress(cidr netip.Prefix) netip.Addr {
	return cidr.Masked().Addr().Next()
}

// EnsureService creates the kubernetes Service if it does not exist. It never
// changes it, so that operators may, as in Kubernetes.
func EnsureService(ctx context.Context, client corev1client.ServicesGetter, s Service) error {
	policy := corev1.IPFamilyPolicySingleStack
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:      serviceName,
			Namespace: metav1.NamespaceDefault,
			Labels:    map[string]string{"component": "apiserver", "provider": "kubernetes"},
		},
		Spec: corev1.ServiceSpec{
			Type:            corev1.ServiceTypeClusterIP,
			ClusterIP:       s.ClusterIP.String(),
			IPFamilyPolicy:  &policy,
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{
				Name:       "https",
				Protocol:   corev1.ProtocolTCP,
				Port:       s.Port,
				TargetPort: intstr.FromInt32(s.TargetPort),
				NodePort:   s.NodePort,
			}},
		},
	}
	if s.NodePort != 0 {
		service.Spec.Type = corev1.ServiceTypeNodePort
	}
	if err := createIfAbsent(ctx, client.Services(metav1.NamespaceDefault), service); err != nil {
		return fmt.Errorf("ensure service %s: %w", serviceName, err)
	}
	return nil
}
