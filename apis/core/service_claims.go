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
)

// The pools of which services hold keys: addresses in their shortest form, and
// port numbers.
const (
	serviceIPPool       = "serviceips"
	serviceNodePortPool = "servicenodeports"
)

// serviceClaims is what a service holds, by pool.
func serviceClaims(s *corev1.Service) map[string][]string {
	ips, ports := holdings(s)
	return map[string][]string{serviceIPPool: ips, serviceNodePortPool: ports}
}

func beginServiceCreate(ctx context.Context, env *resource.Env, s *corev1.Service, dryRun bool) (func(bool), error) {
	return beginService(ctx, env, s, nil, dryRun)
}

func beginServiceUpdate(ctx context.Context, env *resource.Env, s, old *corev1.Service, dryRun bool) (func(bool), error) {
	return beginService(ctx, env, s, old, dryRun)
}

// beginService claims what the service needs beyond what it holds (old, nil on
// create) and writes it into s. What it no longer needs is released once the
// write has succeeded.
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
	c := &serviceClaimer{env: env, s: s, owner: owner, dryRun: dryRun, random: rand.Uint64N}
	if err := c.carryOut(ctx, planService(s, old), old == nil); err != nil {
		c.finish(ctx, false, old)
		return nil, err
	}
	return func(ok bool) { c.finish(ctx, ok, old) }, nil
}

// releaseService gives up what a deleted service held, and its Endpoints, so
// that a new service of the same name does not begin with them.
func releaseService(ctx context.Context, env *resource.Env, s *corev1.Service) {
	c := &serviceClaimer{env: env, s: s, owner: resource.OwnerOf(s)}
	for pool, keys := range serviceClaims(s) {
		c.release(ctx, pool, keys)
	}
	all := env.Objects(schema.GroupResource{Resource: "endpoints"})
	if all == nil {
		return
	}
	if err := all.Delete(ctx, s.Namespace, s.Name, &metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "The endpoints of a deleted service remain", "service", klog.KObj(s))
	}
}

// serviceClaimer carries out a plan for one request.
type serviceClaimer struct {
	env    *resource.Env
	s      *corev1.Service
	owner  resource.Owner
	dryRun bool
	random func(n uint64) uint64
	// taken are the keys that this request has claimed, by pool; in a dry run
	// those that it would have.
	taken map[string][]string
}

// Why a key cannot be had, in Kubernetes' words.
var (
	errIPAllocated   = errors.New("provided IP is already allocated")
	errPortAllocated = errors.New("provided port is already allocated")
	errFull          = errors.New("range is full")
)

// carryOut claims what clients named before it picks the rest, so that it does
// not pick what they name.
func (c *serviceClaimer) carryOut(ctx context.Context, plan servicePlan, create bool) error {
	for _, i := range plan.ClaimIPs {
		if err := c.claimIP(ctx, c.s.Spec.ClusterIPs[i]); err != nil {
			return err
		}
	}
	for _, i := range plan.PickIPs {
		if err := c.pickIP(ctx, c.s.Spec.IPFamilies[i]); err != nil {
			return err
		}
	}
	for _, i := range plan.ClaimPorts {
		port := c.s.Spec.Ports[i].NodePort
		if err := c.claimPort(ctx, port); err != nil {
			return invalidService(c.s, field.Invalid(specPath.Child("ports").Index(i).Child("nodePort"), port, err.Error()))
		}
	}
	if plan.ClaimHealthPort {
		if err := c.claimPort(ctx, c.s.Spec.HealthCheckNodePort); err != nil {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", c.s.Spec.HealthCheckNodePort, err))
		}
	}
	for _, i := range plan.PickPorts {
		if c.s.Spec.Ports[i].NodePort != 0 {
			continue // shared with another protocol
		}
		port, err := c.pickPort(ctx)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
		}
		c.s.Spec.Ports[i].NodePort = port
		if create {
			shareNodePorts(c.s)
		}
	}
	if plan.PickHealthPort {
		port, err := c.pickPort(ctx)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate a HealthCheck NodePort: %w", err))
		}
		c.s.Spec.HealthCheckNodePort = port
	}
	return nil
}

func (c *serviceClaimer) claimIP(ctx context.Context, ip string) error {
	refuse := func(err error) error {
		return invalidService(c.s, field.Invalid(specPath.Child("clusterIPs"), c.s.Spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %v: %v", ip, err)))
	}
	addr, err := netip.ParseAddr(canonicalIP(ip))
	if err != nil {
		return refuse(err)
	}
	if cidr, ok := c.cidr(familyOf(ip)); !ok || !usable(cidr, addr) {
		return refuse(fmt.Errorf("the provided IP (%v) is not in the valid range. The range of valid IPs is %s", ip, cidr))
	}
	err = c.claim(ctx, serviceIPPool, addr.String())
	if apierrors.IsAlreadyExists(err) {
		return refuse(errIPAllocated)
	} else if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate IP %v for Service %q: %w", ip, c.s.Name, err))
	}
	return nil
}

func (c *serviceClaimer) pickIP(ctx context.Context, family corev1.IPFamily) error {
	cidr, ok := c.cidr(family)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: the server has no range of %s addresses", c.s.Name, family))
	}
	ip, err := c.pick(ctx, serviceIPPool, addressSpan(cidr))
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: %w", c.s.Name, err))
	}
	c.s.Spec.ClusterIPs = append(c.s.Spec.ClusterIPs, ip)
	c.s.Spec.ClusterIP = c.s.Spec.ClusterIPs[0]
	return nil
}

func (c *serviceClaimer) claimPort(ctx context.Context, port int32) error {
	if ports := c.env.NodePorts; port < ports.From || port > ports.To {
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %d-%d", ports.From, ports.To)
	}
	err := c.claim(ctx, serviceNodePortPool, portKey(port))
	if apierrors.IsAlreadyExists(err) {
		return errPortAllocated
	}
	return err
}

func (c *serviceClaimer) pickPort(ctx context.Context) (int32, error) {
	key, err := c.pick(ctx, serviceNodePortPool, portSpan(c.env.NodePorts))
	if err != nil {
		return 0, err
	}
	port, err := strconv.ParseInt(key, 10, 32)
	return int32(port), err
}

// pick claims any key of the span. It tries its luck before it looks at what
// is held, and looks again whenever somebody else was faster.
func (c *serviceClaimer) pick(ctx context.Context, pool string, all span) (string, error) {
	var held map[string]resource.Owner
	for {
		key, ok := all.pick(func(key string) bool {
			_, claimed := held[key]
			return claimed || slices.Contains(c.taken[pool], key)
		}, c.random)
		if !ok {
			return "", errFull
		}
		err := c.claim(ctx, pool, key)
		if !apierrors.IsAlreadyExists(err) {
			return key, err
		}
		if held, err = c.env.Claims(pool).Held(ctx); err != nil {
			return "", err
		}
	}
}

// claim takes the key; in a dry run it only asks whether it could.
func (c *serviceClaimer) claim(ctx context.Context, pool, key string) error {
	if c.dryRun {
		held, err := c.env.Claims(pool).Held(ctx)
		if err != nil {
			return err
		}
		if _, claimed := held[key]; claimed || slices.Contains(c.taken[pool], key) {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: pool}, key)
		}
	} else if err := c.env.Claims(pool).Claim(ctx, key, c.owner); err != nil {
		return err
	}
	if c.taken == nil {
		c.taken = map[string][]string{}
	}
	c.taken[pool] = append(c.taken[pool], key)
	return nil
}

// finish releases what is not held after the request: what the service had
// and needs no more if it was written, what was claimed for it if it was not.
func (c *serviceClaimer) finish(ctx context.Context, ok bool, old *corev1.Service) {
	if c.dryRun {
		return
	}
	if !ok {
		for pool, keys := range c.taken {
			c.release(ctx, pool, keys)
		}
		return
	}
	if old == nil {
		return
	}
	has := serviceClaims(c.s)
	for pool, had := range serviceClaims(old) {
		c.release(ctx, pool, without(had, has[pool]))
	}
}

// releaseTimeout bounds a release, which goes on when its request has ended.
const releaseTimeout = 10 * time.Second

// release gives up the keys. What cannot be released now is when the server
// next compares claims with services.
func (c *serviceClaimer) release(ctx context.Context, pool string, keys []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	for _, key := range keys {
		if err := c.env.Claims(pool).Release(ctx, key, c.owner); err != nil {
			klog.FromContext(ctx).Error(err, "A claim remains until the next repair", "pool", pool, "key", key, "service", klog.KObj(c.s))
		}
	}
}

// cidr is the server's range of a family.
func (c *serviceClaimer) cidr(family corev1.IPFamily) (netip.Prefix, bool) {
	for _, cidr := range c.env.ServiceCIDRs {
		if familyOfPrefix(cidr) == family {
			return cidr, true
		}
	}
	return netip.Prefix{}, false
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
