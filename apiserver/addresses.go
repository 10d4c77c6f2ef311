package apiserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/bootstrap"
	"svc.dev/svc/apiserver/clusterip"
	"svc.dev/svc/apiserver/inprocess"
	"svc.dev/svc/apiserver/registry"
	"svc.dev/svc/apiserver/release"
)

// addresses are the cluster IP addresses of services with objects: their ranges are those of
// ServiceCIDRs, and each address has an IPAddress.
type addresses struct {
	*clusterip.Addresses
	ranges *clusterip.Ranges
	// events of their repairs, and of the default ServiceCIDR.
	repairs, keeping events.EventRecorder
}

// newAddresses lets services get their addresses from the ranges of ServiceCIDRs, unless the
// feature gate is off, the release does not serve the kinds, or the server is behind a host,
// which has the services. Then it returns nil.
func newAddresses(s *stores, c *clients, behind *hosted) (*addresses, error) {
	if behind != nil || !s.objectsOfAddresses() {
		return nil, nil
	}
	ranges, err := clusterip.NewRanges(s.env.ServiceCIDRs, c.informers.Networking().V1().ServiceCIDRs())
	if err != nil {
		return nil, fmt.Errorf("follow ServiceCIDRs: %w", err)
	}
	objects := addressObjects{s.registry, s.registry.NewCreator(s.scheme)}
	a := &addresses{
		Addresses: clusterip.NewAddresses(s.reservations.Pool(core.ServiceIPPool), objects, s.service),
		ranges:    ranges,
		repairs:   c.events.recorder(clusterip.EventSource),
		keeping:   c.events.recorder(bootstrap.ServiceCIDREventSource),
	}
	s.env.ServiceRanges = ranges.Ready
	pools := s.env.Reservations
	s.env.Reservations = func(pool string) resource.Reservations {
		if pool == core.ServiceIPPool {
			return a
		}
		return pools(pool)
	}
	return a, nil
}

// objectsOfAddresses reports whether cluster IP addresses have objects.
func (s *stores) objectsOfAddresses() bool {
	return s.gate(release.ServiceCIDRGate) && !slices.ContainsFunc(s.kinds, func(k *resource.Kind) bool {
		needed := k.Resource() == ipAddresses || k.Resource() == serviceCIDRs
		return needed && !slices.Contains(s.served.Versions(k), k.Hub)
	})
}

// service reads a service from etcd.
func (s *stores) service(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	obj, err := s.registry.Objects(corev1.Resource("services")).Get(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Service), nil
}

// defaultServiceCIDR returns the default ServiceCIDR, or nil if addresses have no objects.
func (a *addresses) defaultServiceCIDR(c *chain) *bootstrap.ServiceCIDR {
	if a == nil {
		return nil
	}
	d := &bootstrap.ServiceCIDR{Client: c.clients.typed.NetworkingV1(), Clock: c.clock, Events: a.keeping, Seen: a.ranges.Sees}
	for _, cidr := range c.stores.env.ServiceCIDRs {
		d.CIDRs = append(d.CIDRs, cidr.Masked().String())
	}
	return d
}

// repair makes the objects agree with the services, whose reservations have been repaired.
func (a *addresses) repair(ctx context.Context, s *stores, now time.Time) error {
	list, err := s.registry.Objects(corev1.Resource("services")).List(ctx, "", labels.Everything())
	if err != nil {
		return fmt.Errorf("list services to repair their addresses: %w", err)
	}
	all := make([]*corev1.Service, len(list))
	for i, obj := range list {
		all[i] = obj.(*corev1.Service)
	}
	return a.Repair(ctx, all, a.ranges, now, a.repairs)
}

// addressObjects implements clusterip.Objects.
type addressObjects struct {
	registry *registry.Registry
	creator  *registry.Creator
}

var ipAddresses, serviceCIDRs = networkingv1.Resource("ipaddresses"), networkingv1.Resource("servicecidrs")

// Get implements clusterip.Objects.
func (o addressObjects) Get(ctx context.Context, name string) (*networkingv1.IPAddress, error) {
	obj, err := o.registry.Objects(ipAddresses).Get(ctx, "", name)
	if err != nil {
		return nil, err
	}
	return obj.(*networkingv1.IPAddress), nil
}

// List implements clusterip.Objects.
func (o addressObjects) List(ctx context.Context) ([]*networkingv1.IPAddress, error) {
	list, err := o.registry.Objects(ipAddresses).List(ctx, "", labels.Everything())
	if err != nil {
		return nil, err
	}
	all := make([]*networkingv1.IPAddress, len(list))
	for i, obj := range list {
		all[i] = obj.(*networkingv1.IPAddress)
	}
	return all, nil
}

// Create implements clusterip.Objects.
func (o addressObjects) Create(ctx context.Context, address *networkingv1.IPAddress) error {
	return o.creator.Create(ctx, inprocess.UserAgent, address)
}

// Delete implements clusterip.Objects.
func (o addressObjects) Delete(ctx context.Context, name string, allowed func(*networkingv1.IPAddress) error) error {
	return o.registry.DeleteIf(ctx, ipAddresses, "", name, func(obj runtime.Object) error { return allowed(obj.(*networkingv1.IPAddress)) })
}
