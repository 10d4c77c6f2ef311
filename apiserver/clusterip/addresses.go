// Package clusterip owns the cluster IP addresses of services where the feature gate
// MultiCIDRServiceAllocator is on: the ranges that they come from, which ServiceCIDR objects
// declare, and the IPAddress object of each.
//
// The reservation of an address decides who has it, at servers with and without the gate.
// The IPAddress object of a service's address follows it: Addresses writes and deletes it,
// and Repair corrects what a crash, a user or a server without the gate has left different.
// An IPAddress of another manager keeps its address from services.
package clusterip

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	netutils "k8s.io/utils/net"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/servicerange"
)

const (
	// cleanupTimeout bounds what is undone after a request has failed or ended.
	cleanupTimeout = 10 * time.Second
	// takeovers is how often the object of another owner is replaced before the address
	// counts as taken: others may try to reserve it at the same time.
	takeovers = 3
)

// services is the resource of the parents of the objects.
var services = corev1.Resource("services").Resource

// Objects reads and writes IPAddress objects. Errors are apierrors, or those of allowed.
type Objects interface {
	Get(ctx context.Context, name string) (*networkingv1.IPAddress, error)
	// List returns all objects, as they are in etcd. They must not be modified.
	List(ctx context.Context) ([]*networkingv1.IPAddress, error)
	// Create writes a new object, and sets its UID.
	Create(ctx context.Context, address *networkingv1.IPAddress) error
	// Delete requests the deletion of an object if allowed returns nil for it.
	Delete(ctx context.Context, name string, allowed func(*networkingv1.IPAddress) error) error
}

// Addresses is the pool of cluster IP addresses with the IPAddress object of each.
type Addresses struct {
	reservations resource.Reservations
	objects      Objects
	service      func(ctx context.Context, namespace, name string) (*corev1.Service, error)
}

var _ resource.Reservations = &Addresses{}

// NewAddresses returns the pool whose addresses are reserved in reservations. service reads
// a service from etcd.
func NewAddresses(reservations resource.Reservations, objects Objects, service func(ctx context.Context, namespace, name string) (*corev1.Service, error)) *Addresses {
	return &Addresses{reservations: reservations, objects: objects, service: service}
}

// errOther is the reason not to delete an object: it is not the expected one.
var errOther = errors.New("the IPAddress is of another owner")

// Reserve implements resource.Reservations. It writes the reservation and the object at the
// same time, so that a service does not wait for two writes; only the reservation decides.
func (a *Addresses) Reserve(ctx context.Context, key string, owner resource.Owner) error {
	object := newObject(key, owner.Namespace, owner.Name)
	created := make(chan error, 1)
	go func() { created <- a.objects.Create(ctx, object) }()
	err := a.reservations.Reserve(ctx, key, owner)
	createErr := <-created
	switch {
	case err != nil:
		if createErr == nil {
			a.undo(ctx, key, func(ctx context.Context) error { return a.delete(ctx, key, is(object)) })
		}
		return err
	case createErr == nil:
		return nil
	case apierrors.IsAlreadyExists(createErr):
		createErr = a.takeOver(ctx, key, owner)
	}
	if createErr != nil {
		a.undo(ctx, key, func(ctx context.Context) error { return a.Release(ctx, key, owner) })
	}
	return createErr
}

// takeOver replaces the object of an address that the owner has just reserved. An object of
// this package whose service does not have the address is a leftover, or of a request that
// has lost the race for the reservation. Otherwise the address is taken.
func (a *Addresses) takeOver(ctx context.Context, key string, owner resource.Owner) error {
	for range takeovers {
		current, err := a.objects.Get(ctx, key)
		if err == nil {
			err = a.deleteLeftover(ctx, current)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		err = a.objects.Create(ctx, newObject(key, owner.Namespace, owner.Name))
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return taken(key)
}

// deleteLeftover deletes an object of this package, unless its service has the address.
func (a *Addresses) deleteLeftover(ctx context.Context, current *networkingv1.IPAddress) error {
	if !managed(current) {
		return taken(current.Name)
	}
	if parent := current.Spec.ParentRef; ofService(parent) {
		service, err := a.service(ctx, parent.Namespace, parent.Name)
		if err == nil && has(service, current.Name) {
			return taken(current.Name)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return a.delete(ctx, current.Name, is(current))
}

// Release implements resource.Reservations. The object goes first: once the reservation is
// released, the next owner writes one of the same name.
func (a *Addresses) Release(ctx context.Context, key string, owner resource.Owner) error {
	err := a.delete(ctx, key, func(current *networkingv1.IPAddress) error {
		if p := current.Spec.ParentRef; ofService(p) && p.Namespace == owner.Namespace && p.Name == owner.Name {
			return nil
		}
		return errOther
	})
	if err != nil {
		return fmt.Errorf("delete IPAddress %s: %w", key, err)
	}
	return a.reservations.Release(ctx, key, owner)
}

// Held implements resource.Reservations. The addresses of objects of other managers are held
// by an owner without a name.
func (a *Addresses) Held(ctx context.Context) (map[string]resource.Owner, error) {
	held, err := a.reservations.Held(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := a.objects.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if _, reserved := held[object.Name]; !reserved && !managed(object) {
			held[object.Name] = resource.Owner{}
		}
	}
	return held, nil
}

// delete deletes the object of an address; it is no error if there is none, or if it is not
// the expected one.
func (a *Addresses) delete(ctx context.Context, key string, allowed func(*networkingv1.IPAddress) error) error {
	err := a.objects.Delete(ctx, key, allowed)
	if apierrors.IsNotFound(err) || errors.Is(err, errOther) {
		return nil
	}
	return err
}

// undo undoes a part of Reserve. If that fails, the periodic repair does it.
func (a *Addresses) undo(ctx context.Context, key string, do func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to undo the reservation of a cluster IP address, the next repair will", "address", key)
	}
}

// is allows to delete exactly this object.
func is(object *networkingv1.IPAddress) func(*networkingv1.IPAddress) error {
	return func(current *networkingv1.IPAddress) error {
		if current.UID == object.UID {
			return nil
		}
		return errOther
	}
}

func taken(key string) error {
	return apierrors.NewAlreadyExists(networkingv1.Resource("ipaddresses"), key)
}

// newObject returns the object of an address of a service.
func newObject(key, namespace, name string) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: key, Labels: labelsOf(key)},
		Spec:       networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: services, Namespace: namespace, Name: name}},
	}
}

// labelsOf returns the labels of the object of an address.
func labelsOf(key string) map[string]string {
	return map[string]string{
		networkingv1.LabelIPAddressFamily: string(familyOf(key)),
		networkingv1.LabelManagedBy:       servicerange.Manager,
	}
}

func familyOf(key string) corev1.IPFamily {
	if netutils.IsIPv6String(key) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// managed reports whether an object is one of this package.
func managed(object *networkingv1.IPAddress) bool {
	return object.Labels[networkingv1.LabelManagedBy] == servicerange.Manager
}

func ofService(parent *networkingv1.ParentReference) bool {
	return parent != nil && parent.Group == "" && parent.Resource == services
}

// has reports whether a service has an address.
func has(service *corev1.Service, key string) bool {
	return slices.Contains(addressesOf(service), key)
}

// addressesOf returns the addresses of a service in their canonical form, in which they are
// names of objects.
func addressesOf(service *corev1.Service) []string {
	var keys []string
	for _, ip := range service.Spec.ClusterIPs {
		if parsed := netutils.ParseIPSloppy(ip); parsed != nil {
			keys = append(keys, parsed.String())
		}
	}
	return keys
}
