package cluster

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/internal/component"
	"svc.dev/svc/svclet/dns"
)

// dnsService makes the service at whose address pods ask for names. The DNS servers of
// the nodes answer there while it has no endpoints.
type dnsService struct {
	server   *options.Options
	keys     *certificates
	messages io.Writer
	program  string

	description string
	retry       component.Task
}

// dnsRetryDelay is the time between two attempts to create the service.
const dnsRetryDelay = 10 * time.Second

// Name implements component.Component.
func (*dnsService) Name() string { return "DNS" }

// Start implements component.Component. Without the service, the cluster works.
func (d *dnsService) Start(ctx context.Context) error {
	ranges, err := d.server.Network.ServiceCIDRs()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(d.keys.client("svc-up"))
	if err != nil {
		return err
	}
	return d.ensure(ctx, client.CoreV1().Services(dns.ServiceKey().Namespace), ranges)
}

// ensure creates the service now or, after an error, as soon as it can.
func (d *dnsService) ensure(ctx context.Context, services corev1client.ServiceInterface, ranges []netip.Prefix) error {
	service, err := ensureDNS(ctx, services, ranges)
	if err != nil && ctx.Err() == nil {
		d.description = "none: " + err.Error()
		fmt.Fprintf(d.messages, "%s: names of services have no server until the service %s can be created, will retry: %v\n", d.program, dns.ServiceKey(), err)
		d.retry.Go(ctx, d.Name(), func(ctx context.Context) error {
			if err := wait.PollUntilContextCancel(ctx, dnsRetryDelay, false, func(ctx context.Context) (bool, error) {
				_, err := ensureDNS(ctx, services, ranges)
				if err != nil {
					klog.FromContext(ctx).V(2).Info("Failed to create the DNS service, will retry", "err", err)
				}
				return err == nil, nil
			}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		return nil
	}
	d.description = service.Spec.ClusterIP
	return err
}

// Ready implements component.Component.
func (d *dnsService) Ready(context.Context) (string, error) { return d.description, nil }

// Failed implements component.Component.
func (*dnsService) Failed() <-chan error { return nil }

// Stop implements component.Component.
func (d *dnsService) Stop() error {
	d.retry.Stop()
	return nil
}

// dnsRules are the permissions of ensureDNS.
func dnsRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{dns.ServiceKey().Name}, Verbs: []string{"get"}},
	}
}

// ensureDNS creates the service if there is none. It never changes it: pods keep its
// address, and users may have another one.
func ensureDNS(ctx context.Context, services corev1client.ServiceInterface, ranges []netip.Prefix) (*corev1.Service, error) {
	name := dns.ServiceKey().Name
	found, err := services.Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return found, err
	}
	created, err := services.Create(ctx, newDNSService(ranges, true), metav1.CreateOptions{})
	if apierrors.IsInvalid(err) {
		// Another service has the address.
		created, err = services.Create(ctx, newDNSService(ranges, false), metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		return services.Get(ctx, name, metav1.GetOptions{})
	}
	return created, err
}

// newDNSService returns the service. Its selector is that of cluster add-ons for DNS, which
// get its address when they are installed.
func newDNSService(ranges []netip.Prefix, fixed bool) *corev1.Service {
	labels := map[string]string{"k8s-app": "kube-dns"}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: dns.ServiceKey().Namespace, Name: dns.ServiceKey().Name, Labels: labels},
		Spec: corev1.ServiceSpec{
			Selector:   labels,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: dns.ServicePort, TargetPort: intstr.FromInt32(dns.ServicePort)},
				{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: dns.ServicePort, TargetPort: intstr.FromInt32(dns.ServicePort)},
			},
		},
	}
	// Pods ask at the first address: at one of IPv4 if there are both, since a network of
	// pods may have none of IPv6.
	family := ranges[0]
	for _, cidr := range ranges {
		if cidr.Addr().Is4() {
			family = cidr
		}
	}
	if len(ranges) > 1 {
		service.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
	}
	if family.Addr().Is6() {
		service.Spec.IPFamilies[0] = corev1.IPv6Protocol
	}
	if address := tenth(family); fixed && address.IsValid() {
		service.Spec.ClusterIP = address.String()
	}
	return service
}

// tenth returns the tenth address of a range, where clusters have their DNS by
// convention, or an invalid one if the range is smaller.
func tenth(cidr netip.Prefix) netip.Addr {
	address := cidr.Masked().Addr()
	for range 10 {
		address = address.Next()
	}
	if last := address.Next(); !cidr.Contains(last) {
		return netip.Addr{} // it or its successor, which is the broadcast address, ends the range
	}
	return address
}
