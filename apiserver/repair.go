package apiserver

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/clusterip"
	"svc.dev/svc/apiserver/reservation"
)

// repairReservations makes the reservations agree with the objects that hold
// them, and the objects of addresses with both, which a crash may have left different.
func (c *chain) repairReservations(ctx context.Context) error {
	holders := func(ctx context.Context) (map[string]map[string][]resource.Owner, error) {
		return reservation.Holders(ctx, c.stores.kinds, func(ctx context.Context, kind *resource.Kind) ([]runtime.Object, error) {
			return c.stores.env.Objects(kind.Resource()).List(ctx, "", labels.Everything())
		})
	}
	byPool, err := holders(ctx)
	if err != nil {
		return err
	}
	for pool, held := range byPool {
		again := func(ctx context.Context) (map[string][]resource.Owner, error) {
			byPool, err := holders(ctx)
			return byPool[pool], err
		}
		report, err := c.stores.reservations.Repair(ctx, pool, held, again, 2*c.options.Requests.Timeout+time.Minute)
		if err != nil {
			return fmt.Errorf("repair reservations of %s: %w", pool, err)
		}
		logger := klog.FromContext(ctx).WithValues("pool", pool)
		if len(report.Released) > 0 || len(report.Reserved) > 0 {
			logger.Info("Repaired reservations", "released", report.Released, "reserved", report.Reserved)
		}
		for _, conflict := range report.Conflicts {
			logger.Error(nil, "Several objects hold the same reservation, delete and create all but one again", "key", conflict.Key, "holders", conflict.Holders)
		}
		c.reportServices(ctx, pool, held, report.Reserved)
	}
	if c.addresses == nil {
		return nil
	}
	c.clients.events.start(ctx)
	return c.addresses.repair(ctx, c.stores, c.clock.Now())
}

// reportServices writes events about what is wrong with the services that hold keys of a pool.
func (c *chain) reportServices(ctx context.Context, pool string, held map[string][]resource.Owner, reserved []string) {
	var source string
	var describe func(key string) allocated
	switch {
	case pool == core.ServiceNodePortPool:
		source, describe = "portallocator-repair-controller", func(key string) allocated { return allocatedPort(key, c.stores.env.NodePorts) }
	case pool == core.ServiceIPPool && c.addresses == nil: // otherwise the repair of its objects reports an address
		source, describe = clusterip.EventSource, func(key string) allocated { return allocatedAddress(key, c.stores.env.ServiceCIDRs) }
	default:
		return
	}
	problems := serviceProblems(held, reserved, describe)
	if len(problems) == 0 {
		return
	}
	c.clients.events.start(ctx)
	recorder := c.clients.events.recorder(source)
	for _, p := range problems {
		about := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: p.service.Namespace, Name: p.service.Name, UID: p.service.UID}}
		recorder.Eventf(about, nil, corev1.EventTypeWarning, p.reason, p.action, "%s", p.note)
	}
}

// allocated is a key of a pool in the words of events.
type allocated struct {
	// subject is the key, and reason what the reasons of its events begin with.
	subject, reason, action string
	// outside is why a service cannot have the key at this server, or "".
	outside string
}

func allocatedPort(key string, ports resource.PortRange) allocated {
	a := allocated{subject: "Port " + key, reason: "Port", action: "PortAllocation"}
	if port, err := strconv.ParseInt(key, 10, 32); err != nil || int32(port) < ports.From || int32(port) > ports.To {
		a.outside = fmt.Sprintf("is not within the port range %d-%d", ports.From, ports.To)
	}
	return a
}

func allocatedAddress(key string, ranges []netip.Prefix) allocated {
	address, _ := netip.ParseAddr(key) // no range contains the zero value
	family := corev1.IPv4Protocol
	if address.Is6() {
		family = corev1.IPv6Protocol
	}
	a := allocated{subject: fmt.Sprintf("Cluster IP [%s]:%s", family, key), reason: "ClusterIP", action: "ClusterIPAllocation"}
	at := slices.IndexFunc(ranges, func(r netip.Prefix) bool { return r.Addr().Is6() == address.Is6() })
	switch {
	case at < 0:
		a.outside = "is of an IP family without a service CIDR"
	case !ranges[at].Contains(address):
		a.outside = fmt.Sprintf("is not within the service CIDR %s", ranges[at].Masked())
	}
	return a
}

// serviceProblem is what is wrong with a service, as an event.
type serviceProblem struct {
	service              resource.Owner
	reason, action, note string
}

// serviceProblems returns what is wrong with the services that hold keys of a pool, of which some
// were not reserved. The rules are those of kube-apiserver
// (pkg/registry/core/service/portallocator/controller and ipallocator/controller).
func serviceProblems(held map[string][]resource.Owner, reserved []string, describe func(key string) allocated) []serviceProblem {
	var problems []serviceProblem
	for _, key := range slices.Sorted(maps.Keys(held)) {
		a := describe(key)
		for i, service := range held[key] {
			p := serviceProblem{service: service, action: a.action}
			switch {
			case a.outside != "":
				p.reason, p.note = a.reason+"OutOfRange", a.subject+" "+a.outside+"; please recreate service"
			case i > 0:
				p.reason, p.note = a.reason+"AlreadyAllocated", a.subject+" was assigned to multiple services; please recreate service"
			case slices.Contains(reserved, key):
				p.reason, p.note = a.reason+"NotAllocated", a.subject+" is not allocated; repairing"
			default:
				continue
			}
			problems = append(problems, p)
		}
	}
	return problems
}

// ownEvents writes events of the server itself. It runs nothing before its first use.
type ownEvents struct {
	broadcaster func() events.EventBroadcaster
	once        sync.Once
}

func newOwnEvents(client kubernetes.Interface) *ownEvents {
	return &ownEvents{broadcaster: sync.OnceValue(func() events.EventBroadcaster {
		return events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	})}
}

// recorder returns what records events that are reported by source.
func (e *ownEvents) recorder(source string) events.EventRecorder {
	return e.broadcaster().NewRecorder(scheme.Scheme, source)
}

// start begins to write events, until the context of its first call is done.
func (e *ownEvents) start(ctx context.Context) {
	e.once.Do(func() {
		if err := e.broadcaster().StartRecordingToSinkWithContext(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to record events of the API server")
		}
		context.AfterFunc(ctx, e.broadcaster().Shutdown)
	})
}
