package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	netutils "k8s.io/utils/net"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/servicerange"
)

// The pools in which services reserve keys: addresses in their canonical form,
// and port numbers.
const (
	ServiceIPPool       = "serviceips"
	ServiceNodePortPool = "servicenodeports"
)

// serviceReservations are the keys that a service holds, by pool.
func serviceReservations(s *corev1.Service) map[string][]string {
	ips, ports := holdings(s)
	return map[string][]string{ServiceIPPool: ips, ServiceNodePortPool: ports}
}

func beginServiceCreate(ctx context.Context, env *resource.Env, s *corev1.Service, dryRun bool) (func(bool), error) {
	return beginService(ctx, env, s, nil, dryRun)
}

func beginServiceUpdate(ctx context.Context, env *resource.Env, s, old *corev1.Service, dryRun bool) (func(bool), error) {
	return beginService(ctx, env, s, old, dryRun)
}

// beginService allocates the addresses and node ports that the service needs
// beyond those that it holds (old, nil on create) and writes them into s. Those
// that it no longer needs are released after the write has succeeded.
func beginService(ctx context.Context, env *resource.Env, s, old *corev1.Service, dryRun bool) (func(bool), error) {
	var configured []corev1.IPFamily
	for _, cidr := range env.ServiceCIDRs {
		configured = append(configured, familyOfPrefix(cidr))
	}
	if errs := completeFamilies(s, old, configured); len(errs) > 0 {
		return nil, invalidService(s, errs...)
	}
	if old == nil {
		shareNodePorts(s)
	}
	owner := resource.OwnerOf(s)
	if old != nil {
		owner = resource.OwnerOf(old) // the client may have left the UID out
	}
	c := &serviceAllocator{env: env, s: s, owner: owner, dryRun: dryRun, random: rand.Uint64N}
	if err := c.execute(ctx, planService(s, old), old == nil); err != nil {
		c.finish(ctx, false, old)
		return nil, err
	}
	return func(ok bool) { c.finish(ctx, ok, old) }, nil
}

// releaseService releases what a deleted service held and deletes its Endpoints,
// so that a new service of the same name does not start with them.
func releaseService(ctx context.Context, env *resource.Env, s *corev1.Service) {
	c := &serviceAllocator{env: env, s: s, owner: resource.OwnerOf(s)}
	for pool, keys := range serviceReservations(s) {
		c.release(ctx, pool, keys)
	}
	all := env.Objects(schema.GroupResource{Resource: "endpoints"})
	if all == nil {
		return
	}
	if err := all.Delete(ctx, s.Namespace, s.Name, &metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Failed to delete the endpoints of a deleted service", "service", klog.KObj(s))
	}
}

// serviceAllocator executes the plan of one request.
type serviceAllocator struct {
	env    *resource.Env
	s      *corev1.Service
	owner  resource.Owner
	dryRun bool
	random func(n uint64) uint64
	// reserved are the keys that this request has reserved, by pool; in a dry
	// run those that it would reserve.
	reserved map[string][]string
}

// The reasons why a key is not available, in the words of Kubernetes' messages.
var (
	errIPAllocated   = errors.New("provided IP is already allocated")
	errPortAllocated = errors.New("provided port is already allocated")
	errFull          = errors.New("range is full")
	errNoRange       = errors.New("the provided network does not match the current range")
)

// execute reserves the keys that the client named before it allocates the
// others, so that it does not allocate a key that the client named.
func (c *serviceAllocator) execute(ctx context.Context, plan servicePlan, create bool) error {
	for _, i := range plan.ReserveIPs {
		if err := c.reserveIP(ctx, c.s.Spec.ClusterIPs[i]); err != nil {
			return err
		}
	}
	for _, i := range plan.AllocateIPs {
		if err := c.allocateIP(ctx, c.s.Spec.IPFamilies[i]); err != nil {
			return err
		}
	}
	for _, i := range plan.ReservePorts {
		port := c.s.Spec.Ports[i].NodePort
		if err := c.reservePort(ctx, port); err != nil {
			return invalidService(c.s, field.Invalid(specPath.Child("ports").Index(i).Child("nodePort"), port, err.Error()))
		}
	}
	if plan.ReserveHealthPort {
		if err := c.reservePort(ctx, c.s.Spec.HealthCheckNodePort); err != nil {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", c.s.Spec.HealthCheckNodePort, err))
		}
	}
	for _, i := range plan.AllocatePorts {
		if c.s.Spec.Ports[i].NodePort != 0 {
			continue // shared with another protocol
		}
		port, err := c.allocatePort(ctx)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
		}
		c.s.Spec.Ports[i].NodePort = port
		if create {
			shareNodePorts(c.s)
		}
	}
	if plan.AllocateHealthPort {
		port, err := c.allocatePort(ctx)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate a HealthCheck NodePort: %w", err))
		}
		c.s.Spec.HealthCheckNodePort = port
	}
	return nil
}

// reserveIP reserves an address that the client has named.
func (c *serviceAllocator) reserveIP(ctx context.Context, ip string) error {
	refuse := func(err error) error {
		return invalidService(c.s, field.Invalid(specPath.Child("clusterIPs"), c.s.Spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %v: %v", ip, err)))
	}
	addr, err := netip.ParseAddr(canonicalIP(ip))
	if err != nil {
		return refuse(err)
	}
	cidr, err := c.rangeOf(ip, addr)
	if err == nil {
		err = c.reserve(ctx, ServiceIPPool, addr.String())
		if apierrors.IsAlreadyExists(err) {
			err = errIPAllocated
		} else if err != nil {
			c.countIP(cidr, true, err)
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate IP %v for Service %q: %w", ip, c.s.Name, err))
		}
	}
	c.countIP(cidr, true, err)
	if err != nil {
		return refuse(err)
	}
	return nil
}

// rangeOf returns the range from which an address that the client has named is allocated.
// With an error it returns the range that refuses it, or the zero value.
func (c *serviceAllocator) rangeOf(ip string, addr netip.Addr) (netip.Prefix, error) {
	var cidr netip.Prefix
	for _, cidr = range c.ranges(familyOf(ip)) {
		if servicerange.Contains(cidr, addr) {
			return cidr, nil
		}
	}
	if c.env.ServiceRanges != nil {
		return netip.Prefix{}, errNoRange
	}
	return cidr, fmt.Errorf("the provided IP (%v) is not in the valid range. The range of valid IPs is %s", ip, cidr)
}

// allocateIP reserves any address of a family, from the first range that has one.
func (c *serviceAllocator) allocateIP(ctx context.Context, family corev1.IPFamily) error {
	cidrs := c.ranges(family)
	if len(cidrs) == 0 && c.env.ServiceRanges == nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: the server has no range of %s addresses", c.s.Name, family))
	}
	ip, err := "", errFull
	for _, cidr := range cidrs {
		ip, err = c.allocate(ctx, ServiceIPPool, addressSpan(cidr))
		c.countIP(cidr, false, err)
		if !errors.Is(err, errFull) {
			break
		}
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: %w", c.s.Name, err))
	}
	c.s.Spec.ClusterIPs = append(c.s.Spec.ClusterIPs, ip)
	c.s.Spec.ClusterIP = c.s.Spec.ClusterIPs[0]
	return nil
}

func (c *serviceAllocator) reservePort(ctx context.Context, port int32) (err error) {
	defer func() { c.count(ServiceNodePortPool, "", true, err) }()
	if ports := c.env.NodePorts; port < ports.From || port > ports.To {
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %d-%d", ports.From, ports.To)
	}
	err = c.reserve(ctx, ServiceNodePortPool, portKey(port))
	if apierrors.IsAlreadyExists(err) {
		return errPortAllocated
	}
	return err
}

func (c *serviceAllocator) allocatePort(ctx context.Context) (int32, error) {
	key, err := c.allocate(ctx, ServiceNodePortPool, portSpan(c.env.NodePorts))
	c.count(ServiceNodePortPool, "", false, err)
	if err != nil {
		return 0, err
	}
	port, err := strconv.ParseInt(key, 10, 32)
	return int32(port), err
}

// countIP counts an attempt to reserve an address of a range, unless that is the zero value.
func (c *serviceAllocator) countIP(cidr netip.Prefix, static bool, err error) {
	if cidr.IsValid() {
		c.count(ServiceIPPool, cidr.String(), static, err)
	}
}

func (c *serviceAllocator) count(pool, part string, static bool, err error) {
	if c.env.CountAllocation != nil && !c.dryRun {
		c.env.CountAllocation(pool, part, static, err)
	}
}

// allocate reserves any free key of the span. It tries a random key before it
// lists the reserved ones, and lists them again whenever another request has
// reserved the key first. It tries no key twice.
func (c *serviceAllocator) allocate(ctx context.Context, pool string, all span) (string, error) {
	var held map[string]resource.Owner
	tried := map[string]bool{}
	for {
		key, ok := all.pick(func(key string) bool {
			_, reserved := held[key]
			return reserved || tried[key] || slices.Contains(c.reserved[pool], key)
		}, c.random)
		if !ok {
			return "", errFull
		}
		err := c.reserve(ctx, pool, key)
		if !apierrors.IsAlreadyExists(err) {
			return key, err
		}
		tried[key] = true
		if held, err = c.env.Reservations(pool).Held(ctx); err != nil {
			return "", err
		}
	}
}

// reserve reserves the key; in a dry run it only checks that the key is free.
func (c *serviceAllocator) reserve(ctx context.Context, pool, key string) error {
	if c.dryRun {
		held, err := c.env.Reservations(pool).Held(ctx)
		if err != nil {
			return err
		}
		if _, reserved := held[key]; reserved || slices.Contains(c.reserved[pool], key) {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: pool}, key)
		}
	} else if err := c.env.Reservations(pool).Reserve(ctx, key, c.owner); err != nil {
		return err
	}
	if c.reserved == nil {
		c.reserved = map[string][]string{}
	}
	c.reserved[pool] = append(c.reserved[pool], key)
	return nil
}

// finish releases what the service does not hold after the request: if it was
// written, what it held before and needs no longer; if not, what this request
// has reserved.
func (c *serviceAllocator) finish(ctx context.Context, ok bool, old *corev1.Service) {
	if c.dryRun {
		return
	}
	if !ok {
		for pool, keys := range c.reserved {
			c.release(ctx, pool, keys)
		}
		return
	}
	if old == nil {
		return
	}
	has := serviceReservations(c.s)
	for pool, had := range serviceReservations(old) {
		c.release(ctx, pool, without(had, has[pool]))
	}
}

// releaseTimeout limits a release, which continues after its request has ended.
const releaseTimeout = 10 * time.Second

// release releases the keys. The periodic repair of reservations releases those
// for which this fails.
func (c *serviceAllocator) release(ctx context.Context, pool string, keys []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	for _, key := range keys {
		if err := c.env.Reservations(pool).Release(ctx, key, c.owner); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to release a reservation, the next repair will", "pool", pool, "key", key, "service", klog.KObj(c.s))
		}
	}
}

// ranges returns the ranges of a family from which addresses are allocated.
func (c *serviceAllocator) ranges(family corev1.IPFamily) []netip.Prefix {
	all := c.env.ServiceCIDRs
	if c.env.ServiceRanges != nil {
		all = c.env.ServiceRanges()
	}
	var ranges []netip.Prefix
	for _, cidr := range all {
		if familyOfPrefix(cidr) == family {
			ranges = append(ranges, cidr)
		}
	}
	return ranges
}

func invalidService(s *corev1.Service, errs ...*field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, s.Name, errs)
}

func familyOfPrefix(cidr netip.Prefix) corev1.IPFamily {
	if cidr.Addr().Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// familyOf is the family of a valid address.
func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
