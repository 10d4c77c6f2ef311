package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// EndpointsInterval is how often the kubernetes Service and its endpoints are repaired,
	// as by kube-apiserver, and how often a server renews its lease. A server whose lease
	// was not renewed for leaseDuration is dead.
	EndpointsInterval = 10 * time.Second
	leaseDuration     = 25 * time.Second

	// leaseLabel marks the servers' leases in kube-system.
	leaseLabel = "apiserver.kubernetes.io/identity"
	leaseValue = "svc-apiserver"
)

// Endpoints publishes the addresses of the servers in the Endpoints and
// EndpointSlices of the kubernetes Service.
//
// Servers that share a storage find each other by leases. A lease has expired when
// this server has not seen it change for leaseDuration. The renew time in the
// lease is not compared with this server's clock, so that clocks may differ.
type Endpoints struct {
	client kubernetes.Interface
	clock  clock.Clock
	self   netip.AddrPort
	shared bool

	// lease is this server's, as last written; seen has the last renewals of the others.
	lease *coordinationv1.Lease
	seen  map[string]observation
	// published is set after the first success.
	published bool
}

// observation is the renew time of a lease, and when this server first saw it.
type observation struct {
	renewal string
	at      time.Time
}

// NewEndpoints returns the publisher of the server at self and, if shared is set,
// of the other servers of its storage.
func NewEndpoints(client kubernetes.Interface, clock clock.Clock, self netip.AddrPort, shared bool) *Endpoints {
	self = netip.AddrPortFrom(self.Addr().Unmap(), self.Port())
	return &Endpoints{client: client, clock: clock, self: self, shared: shared, seen: map[string]observation{}}
}

// Step returns the publication as a step. A server that does not share its storage
// does not remove its endpoint when it stops: without a server, no client can read
// the endpoints.
func (e *Endpoints) Step() Step {
	step := Step{Name: "start-kubernetes-endpoints-controller", Interval: EndpointsInterval, Ensure: e.Ensure}
	if e.shared {
		step.Stop = e.Withdraw
	}
	return step
}

// Ensure renews this server's lease and publishes all servers that are alive.
// It is not safe for concurrent use.
func (e *Endpoints) Ensure(ctx context.Context) error {
	if err := EnsureNamespaces(ctx, e.client.CoreV1(), e.missingNamespaces()...); err != nil {
		return err
	}
	servers := []netip.AddrPort{e.self}
	if e.shared {
		if err := e.renew(ctx); err != nil {
			return fmt.Errorf("renew lease %s: %w", leaseName(e.self), err)
		}
		others, err := e.others(ctx)
		if err != nil {
			return err
		}
		servers = append(servers, others...)
	}
	return e.publish(ctx, servers)
}

// Withdraw deletes this server's lease and publishes the other servers.
func (e *Endpoints) Withdraw(ctx context.Context) error {
	err := e.leases().Delete(ctx, leaseName(e.self), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete lease %s: %w", leaseName(e.self), err)
	}
	e.lease = nil
	others, err := e.others(ctx)
	if err != nil {
		return err
	}
	return e.publish(ctx, others)
}

// missingNamespaces returns the namespaces that may not exist before the first success.
func (e *Endpoints) missingNamespaces() []string {
	if e.published {
		return nil
	}
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem}
}

func (e *Endpoints) leases() coordinationv1client.LeaseInterface {
	return e.client.CoordinationV1().Leases(metav1.NamespaceSystem)
}

// renew writes this server's lease. After an error, such as a conflict with another
// writer, the next call reads the lease again.
func (e *Endpoints) renew(ctx context.Context) error {
	lease := e.lease
	if lease == nil {
		var err error
		lease, err = e.leases().Get(ctx, leaseName(e.self), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			e.lease, err = e.leases().Create(ctx, e.leaseNow(metav1.ObjectMeta{Name: leaseName(e.self)}), metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
	}
	var err error
	if e.lease, err = e.leases().Update(ctx, e.leaseNow(lease.ObjectMeta), metav1.UpdateOptions{}); err != nil {
		e.lease = nil
	}
	return err
}

func (e *Endpoints) leaseNow(meta metav1.ObjectMeta) *coordinationv1.Lease {
	meta.Labels = map[string]string{leaseLabel: leaseValue}
	return &coordinationv1.Lease{
		ObjectMeta: meta,
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To(e.self.String()),
			LeaseDurationSeconds: ptr.To(int32(leaseDuration / time.Second)),
			RenewTime:            ptr.To(metav1.NewMicroTime(e.clock.Now())),
		},
	}
}

// others returns the other servers that are alive. It deletes the leases of dead ones.
func (e *Endpoints) others(ctx context.Context) ([]netip.AddrPort, error) {
	list, err := e.leases().List(ctx, metav1.ListOptions{LabelSelector: leaseLabel + "=" + leaseValue})
	if err != nil {
		return nil, fmt.Errorf("list leases of servers: %w", err)
	}
	now := e.clock.Now()
	seen := map[string]observation{}
	var alive []netip.AddrPort
	var errs []error
	for _, lease := range list.Items {
		server, err := netip.ParseAddrPort(ptr.Deref(lease.Spec.HolderIdentity, ""))
		if err != nil || server == e.self {
			continue
		}
		s := e.seen[lease.Name]
		if renewal := lease.Spec.RenewTime.String(); s.renewal != renewal {
			s = observation{renewal: renewal, at: now}
		}
		seen[lease.Name] = s
		if now.Sub(s.at) < leaseDuration {
			alive = append(alive, server)
			continue
		}
		unchanged := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &lease.ResourceVersion}}
		if err := e.leases().Delete(ctx, lease.Name, unchanged); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete lease %s: %w", lease.Name, err))
		}
	}
	e.seen = seen
	return alive, errors.Join(errs...)
}

// publish writes the servers where the objects have others.
func (e *Endpoints) publish(ctx context.Context, servers []netip.AddrPort) error {
	slices.SortFunc(servers, netip.AddrPort.Compare)
	servers = slices.Compact(servers)
	if err := errors.Join(
		ensureEndpoints(ctx, e.client.CoreV1(), servers),
		ensureEndpointSlices(ctx, e.client.DiscoveryV1(), servers),
	); err != nil {
		return err
	}
	e.published = true
	return nil
}

// leaseName returns a name that is unique for each server and valid in a URL.
func leaseName(server netip.AddrPort) string {
	address := strings.ReplaceAll(server.Addr().WithZone("").String(), ":", "-")
	return fmt.Sprintf("%s-%s-%d", leaseValue, address, server.Port())
}
