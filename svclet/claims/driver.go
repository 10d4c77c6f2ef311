package claims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"svc.dev/svc/svclet/plugins"
)

// driver is a registered instance of a driver.
type driver struct {
	endpoint string
	client   draapi.DRAPluginClient
	conn     *grpc.ClientConn
	// connections is the number of connections to it: it is reachable if there are any. The
	// manager's mu guards it.
	connections int
	// health is what it says of its devices, until healthTimer expires. The manager's mu guards
	// both.
	health      map[deviceKey]deviceHealth
	healthTimer clock.Timer
	// stop ends followHealth.
	stop context.CancelFunc
}

// callTimeout bounds the calls of a driver (kubelet's).
const callTimeout = 45 * time.Second

// Register implements plugins.Handler.
func (m *Manager) Register(ctx context.Context, p plugins.Plugin) error {
	d := &driver{endpoint: p.Endpoint}
	conn, err := grpc.NewClient("unix://"+p.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(connections{manager: m, name: p.Name, driver: d}), grpc.WithIdleTimeout(0))
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", p.Endpoint, err)
	}
	d.conn = conn
	switch {
	case slices.Contains(p.Versions, draapi.DRAPluginService):
		d.client = draapi.NewDRAPluginClient(conn)
	case slices.Contains(p.Versions, drabeta.DRAPluginService):
		d.client = drabeta.V1Beta1ClientWrapper{DRAPluginClient: drabeta.NewDRAPluginClient(conn)}
	default:
		_ = conn.Close() // it has not been used
		return fmt.Errorf("unsupported versions %s of the DRA plugin API: must have %s or %s", strings.Join(p.Versions, ", "), draapi.DRAPluginService, drabeta.DRAPluginService)
	}
	// A driver that is updated registers its next instance before the previous one ends.
	// An instance that has restarted replaces itself.
	m.remove(ctx, p)
	ctx, d.stop = context.WithCancel(ctx)
	m.mu.Lock()
	m.drivers[p.Name] = append(m.drivers[p.Name], d)
	m.syncSlices(p.Name)
	m.mu.Unlock()
	conn.Connect() // before the first call, to know whether it is reachable
	if client := healthClient(conn, p.Versions); client != nil {
		m.followers.Go(func() { m.followHealth(ctx, p.Name, d, client) })
	}
	return nil
}

// Deregister implements plugins.Handler. What the driver has prepared stays prepared.
func (m *Manager) Deregister(ctx context.Context, p plugins.Plugin) {
	m.remove(ctx, p)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.syncSlices(p.Name)
}

// remove forgets the instance of a driver at an endpoint. mu is not held during calls of gRPC,
// which itself calls connections.HandleConn.
func (m *Manager) remove(ctx context.Context, p plugins.Plugin) {
	var removed []*driver
	m.mu.Lock()
	m.drivers[p.Name] = slices.DeleteFunc(m.drivers[p.Name], func(d *driver) bool {
		if d.endpoint != p.Endpoint {
			return false
		}
		removed = append(removed, d)
		return true
	})
	m.mu.Unlock()
	for _, d := range removed {
		d.stop()
		if err := d.conn.Close(); err != nil {
			klog.FromContext(ctx).Info("Failed to close connection to driver", "driver", p.Name, "err", err)
		}
	}
}

// Close closes the connections to the drivers.
func (m *Manager) Close() {
	m.mu.Lock()
	all := slices.Concat(slices.Collect(maps.Values(m.drivers))...)
	clear(m.drivers)
	m.closed = true
	m.mu.Unlock()
	for _, d := range all {
		d.stop()
		_ = d.conn.Close() // the agent ends
	}
	m.followers.Wait()
}

// connections follows the connections to an instance of a driver. It implements stats.Handler.
type connections struct {
	manager *Manager
	name    string
	driver  *driver
}

// TagConn implements stats.Handler.
func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// TagRPC implements stats.Handler.
func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (connections) HandleRPC(context.Context, stats.RPCStats) {}

// HandleConn implements stats.Handler: a driver without a connected instance loses its
// ResourceSlices as one that has deregistered does.
func (c connections) HandleConn(_ context.Context, event stats.ConnStats) {
	switch event.(type) {
	case *stats.ConnBegin:
		c.manager.connect(c.name, c.driver, 1)
	case *stats.ConnEnd:
		c.manager.connect(c.name, c.driver, -1)
		// A connection that is lost is made again at the next call only, or now. gRPC holds
		// locks during this call that Connect takes.
		go c.driver.conn.Connect()
	}
}

// connect records that an instance of a driver has more connections, or fewer: gRPC may begin
// one before it has told of the end of the one before.
func (m *Manager) connect(name string, d *driver, more int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d.connections += more
	if !m.closed {
		m.syncSlices(name)
	}
}

// client returns the client of a driver: of its last instance that is not known to be
// unreachable, or else of the last one.
func (m *Manager) client(name string) (draapi.DRAPluginClient, error) {
	m.mu.Lock()
	instances := slices.Clone(m.drivers[name])
	m.mu.Unlock()
	if len(instances) == 0 {
		return nil, fmt.Errorf("driver %s is not registered on this node", name)
	}
	for _, d := range slices.Backward(instances) {
		if d.conn.GetState() != connectivity.TransientFailure {
			return d.client, nil
		}
	}
	return instances[len(instances)-1].client, nil
}
