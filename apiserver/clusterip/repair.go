package clusterip

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
)

const (
	// EventSource is what events of repairs are reported by.
	EventSource = "ipallocator-repair-controller"
	// grace is how long the object of an address may be without its service: a request may
	// be about to write the service.
	grace = time.Minute
	// repairers is how many objects are written at the same time.
	repairers = 16
)

// The actions of events.
const (
	allocation        = "ClusterIPAllocation"
	addressAllocation = "IPAddressAllocation"
)

// repair is what is wrong about a service or an object, and how it is corrected.
type repair struct {
	// event is about an object; without a reason there is none.
	about                runtime.Object
	reason, action, note string
	// remove is deleted before the object of an address of owner is created; each may be nil,
	// or empty.
	remove  *networkingv1.IPAddress
	owner   *corev1.Service
	address string
}

// Repair makes the objects agree with the addresses of services. all are all services, which
// must have been read from etcd before the call, and whose reservations are correct.
// Conflicts between services are only reported. The events go to recorder.
func (a *Addresses) Repair(ctx context.Context, all []*corev1.Service, ranges *Ranges, now time.Time, recorder events.EventRecorder) error {
	if err := ranges.Wait(ctx); err != nil {
		return fmt.Errorf("wait for ServiceCIDRs: %w", err)
	}
	objects, err := a.objects.List(ctx)
	if err != nil {
		return fmt.Errorf("list IP addresses to repair them: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(repairers)
	for _, r := range planRepairs(all, objects, ranges.Contain, now) {
		group.Go(func() error { return a.correct(ctx, r, recorder) })
	}
	return group.Wait()
}

// correct carries out a repair.
func (a *Addresses) correct(ctx context.Context, r repair, recorder events.EventRecorder) error {
	if r.owner != nil {
		// The service may have been deleted since it was listed.
		service, err := a.service(ctx, r.owner.Namespace, r.owner.Name)
		if apierrors.IsNotFound(err) || err == nil && (service.UID != r.owner.UID || !has(service, r.address)) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("service %s: %w", klog.KObj(r.owner), err)
		}
	}
	if r.reason != "" {
		klog.FromContext(ctx).Info("Repairing the address of a service", "reason", r.reason, "problem", r.note)
		recorder.Eventf(r.about, nil, corev1.EventTypeWarning, r.reason, r.action, "%s", r.note)
	}
	if r.remove != nil {
		if err := a.delete(ctx, r.remove.Name, is(r.remove)); err != nil {
			return fmt.Errorf("delete IPAddress %s: %w", r.remove.Name, err)
		}
	}
	if r.owner == nil {
		return nil
	}
	if err := a.objects.Create(ctx, newObject(r.address, r.owner.Namespace, r.owner.Name)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create IPAddress %s: %w", r.address, err)
	}
	return nil
}

// planner decides what is wrong. The rules are those of kube-apiserver
// (pkg/registry/core/service/ipallocator/controller).
type planner struct {
	services map[string]*corev1.Service // by namespace/name
	objects  map[string]*networkingv1.IPAddress
	inRange  func(netip.Addr) bool
	now      time.Time
	// assigned are the owners of the addresses whose objects are written.
	assigned map[string]*corev1.Service
	repairs  []repair
}

func planRepairs(all []*corev1.Service, objects []*networkingv1.IPAddress, inRange func(netip.Addr) bool, now time.Time) []repair {
	p := planner{
		services: make(map[string]*corev1.Service, len(all)), objects: make(map[string]*networkingv1.IPAddress, len(objects)),
		inRange: inRange, now: now, assigned: map[string]*corev1.Service{},
	}
	for _, s := range all {
		p.services[s.Namespace+"/"+s.Name] = s
	}
	for _, o := range objects {
		p.objects[o.Name] = o
	}
	for _, s := range all {
		if s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.ClusterIP == corev1.ClusterIPNone {
			continue
		}
		for _, address := range addressesOf(s) {
			p.service(s, address)
		}
	}
	for _, o := range objects {
		if managed(o) && p.assigned[o.Name] == nil {
			p.object(o)
		}
	}
	return p.repairs
}

// service decides about an address of a service.
func (p *planner) service(s *corev1.Service, key string) {
	family, object := familyOf(key), p.objects[key]
	about := func(reason, format string, args ...any) repair {
		return repair{about: s, reason: reason, action: allocation, note: fmt.Sprintf(format, args...)}
	}
	if address, err := netip.ParseAddr(key); err != nil || !p.inRange(address) {
		p.repairs = append(p.repairs, about("ClusterIPOutOfRange", "Cluster IP [%v]: %s is not within any configured Service CIDR; please recreate service", family, key))
		return
	}
	if p.assigned[key] != nil || p.isOfOther(object, s, key) {
		p.repairs = append(p.repairs, about("ClusterIPAlreadyAllocated", "Cluster IP [%v]:%s was assigned to multiple services; please recreate service", family, key))
		return
	}
	r := repair{}
	switch {
	case object == nil:
		r = about("ClusterIPNotAllocated", "Cluster IP [%v]: %s is not allocated; repairing", family, key)
	case !refersTo(object, s):
		r = about("ClusterIPNotAllocated", "the ClusterIP [%v]: %s for Service %s/%s has a wrong reference; repairing", family, key, s.Namespace, s.Name)
	case !hasLabels(object):
	default:
		p.assigned[key] = s
		return
	}
	r.remove, r.owner, r.address = object, s, key
	p.assigned[key] = s
	p.repairs = append(p.repairs, r)
}

// isOfOther reports whether an object belongs to another service, which has the address, too.
func (p *planner) isOfOther(object *networkingv1.IPAddress, s *corev1.Service, key string) bool {
	if object == nil || refersTo(object, s) || !ofService(object.Spec.ParentRef) {
		return false
	}
	other := p.services[object.Spec.ParentRef.Namespace+"/"+object.Spec.ParentRef.Name]
	return other != nil && has(other, key)
}

// object decides about an object of this package that is not of the service that has its
// address.
func (p *planner) object(o *networkingv1.IPAddress) {
	parent := o.Spec.ParentRef
	r := repair{about: o, reason: "IPAddressNotAllocated", action: addressAllocation, remove: o}
	switch {
	case !ofService(parent):
		r.note = fmt.Sprintf("IPAddress %s appears to have been modified, not referencing a Service %v: cleaning up", o.Name, parent)
	case p.now.Sub(o.CreationTimestamp.Time) <= grace:
		return
	case p.services[parent.Namespace+"/"+parent.Name] == nil:
		r.note = fmt.Sprintf("IPAddress: %s for Service %s/%s appears to have leaked: cleaning up", o.Name, parent.Namespace, parent.Name)
	case has(p.services[parent.Namespace+"/"+parent.Name], o.Name):
		return // not in any range
	default:
		r.reason = "IPAddressWrongReference"
		r.note = fmt.Sprintf("IPAddress: %s for Service %s/%s has a wrong reference; cleaning up", o.Name, parent.Namespace, parent.Name)
	}
	p.repairs = append(p.repairs, r)
}

func refersTo(object *networkingv1.IPAddress, s *corev1.Service) bool {
	p := object.Spec.ParentRef
	return ofService(p) && p.Namespace == s.Namespace && p.Name == s.Name
}

func hasLabels(object *networkingv1.IPAddress) bool {
	for name, value := range labelsOf(object.Name) {
		if object.Labels[name] != value {
			return false
		}
	}
	return true
}
