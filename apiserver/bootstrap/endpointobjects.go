package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1client "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/utils/ptr"
)

// ensureEndpoints writes the Endpoints of the kubernetes Service. servers must be
// sorted and without duplicates.
func ensureEndpoints(ctx context.Context, client corev1client.EndpointsGetter, servers []netip.AddrPort) error {
	endpoints := client.Endpoints(metav1.NamespaceDefault)
	wanted := endpointsOf(servers)
	current, err := endpoints.Get(ctx, serviceName, cached())
	switch {
	case apierrors.IsNotFound(err):
		_, err = endpoints.Create(ctx, wanted, metav1.CreateOptions{})
	case err == nil && !(equality.Semantic.DeepEqual(current.Subsets, wanted.Subsets) && current.Labels[discoveryv1.LabelSkipMirror] == "true"):
		changed := current.DeepCopy()
		changed.Subsets = wanted.Subsets
		metav1.SetMetaDataLabel(&changed.ObjectMeta, discoveryv1.LabelSkipMirror, "true")
		_, err = endpoints.Update(ctx, changed, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("ensure endpoints %s: %w", serviceName, err)
	}
	return nil
}

// endpointsOf returns Endpoints with a subset for each port.
func endpointsOf(servers []netip.AddrPort) *corev1.Endpoints {
	endpoints := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Name: serviceName,
		// The slices are written here too and must not be mirrored from it.
		Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"},
	}}
	for _, port := range portsOf(servers) {
		subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "https", Port: int32(port), Protocol: corev1.ProtocolTCP}}}
		for _, s := range servers {
			if s.Port() == port {
				subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: s.Addr().String()})
			}
		}
		endpoints.Subsets = append(endpoints.Subsets, subset)
	}
	return endpoints
}

// ensureEndpointSlices writes the EndpointSlices of the kubernetes Service, and
// deletes those that it wrote earlier and that are not needed any more.
func ensureEndpointSlices(ctx context.Context, client discoveryv1client.EndpointSlicesGetter, servers []netip.AddrPort) error {
	slicesClient := client.EndpointSlices(metav1.NamespaceDefault)
	options := cachedList()
	options.LabelSelector = discoveryv1.LabelServiceName + "=" + serviceName
	list, err := slicesClient.List(ctx, options)
	if err != nil {
		return fmt.Errorf("list endpoint slices of service %s: %w", serviceName, err)
	}
	existing := map[string]*discoveryv1.EndpointSlice{}
	for i := range list.Items {
		existing[list.Items[i].Name] = &list.Items[i]
	}
	var errs []error
	for _, wanted := range endpointSlicesOf(servers) {
		if err := ensureEndpointSlice(ctx, slicesClient, existing[wanted.Name], wanted); err != nil {
			errs = append(errs, fmt.Errorf("ensure endpoint slice %s: %w", wanted.Name, err))
		}
		delete(existing, wanted.Name)
	}
	for name, slice := range existing {
		if slice.Labels[discoveryv1.LabelManagedBy] != leaseValue {
			continue
		}
		if err := slicesClient.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete endpoint slice %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func ensureEndpointSlice(ctx context.Context, client discoveryv1client.EndpointSliceInterface, current, wanted *discoveryv1.EndpointSlice) error {
	if current != nil && current.AddressType != wanted.AddressType {
		// The type of the addresses cannot be changed.
		if err := client.Delete(ctx, current.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		current = nil
	}
	if current == nil {
		_, err := client.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	if equality.Semantic.DeepEqual(current.Endpoints, wanted.Endpoints) &&
		equality.Semantic.DeepEqual(current.Ports, wanted.Ports) &&
		equality.Semantic.DeepEqual(current.Labels, wanted.Labels) {
		return nil
	}
	changed := current.DeepCopy()
	changed.Labels, changed.Endpoints, changed.Ports = wanted.Labels, wanted.Endpoints, wanted.Ports
	_, err := client.Update(ctx, changed, metav1.UpdateOptions{})
	return err
}

// endpointSlicesOf returns a slice for each address family and port. The first one
// has the name of the Service.
func endpointSlicesOf(servers []netip.AddrPort) []*discoveryv1.EndpointSlice {
	var result []*discoveryv1.EndpointSlice
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		for _, port := range portsOf(servers) {
			slice := &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{
					Name:   serviceName,
					Labels: map[string]string{discoveryv1.LabelServiceName: serviceName, discoveryv1.LabelManagedBy: leaseValue},
				},
				AddressType: family,
				Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(port)), Protocol: ptr.To(corev1.ProtocolTCP)}},
			}
			for _, s := range servers {
				if s.Port() == port && s.Addr().Is4() == (family == discoveryv1.AddressTypeIPv4) {
					slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
						Addresses:  []string{s.Addr().String()},
						Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
					})
				}
			}
			if len(slice.Endpoints) == 0 {
				continue
			}
			if len(result) > 0 {
				slice.Name = fmt.Sprintf("%s-%d", serviceName, len(result))
			}
			result = append(result, slice)
		}
	}
	return result
}

// portsOf returns the ports of the servers, without duplicates.
func portsOf(servers []netip.AddrPort) []uint16 {
	var ports []uint16
	for _, s := range servers {
		ports = append(ports, s.Port())
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
