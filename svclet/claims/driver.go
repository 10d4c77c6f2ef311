package claims

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	drabeta "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"svc.dev/svc/svclet/plugins"
)

// driver is a registered instance of a driver.
type driver struct {
	endpoint string
	client   draapi.DRAPluginClient
	conn     *grpc.ClientConn
}

// callTimeout bounds the calls of a driver (kubelet's).
const callTimeout = 45 * time.Second

// Register implements plugins.Handler.
func (m *Manager) Register(ctx context.Context, p plugins.Plugin) error {
	conn, err := grpc.NewClient("unix://"+p.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", p.Endpoint, err)
	}
	d := &driver{endpoint: p.Endpoint, conn: conn}
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
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drivers[p.Name] = append(m.drivers[p.Name], d)
	m.keepSlices(p.Name)
	return nil
}

// Deregister implements plugins.Handler. What the driver has prepared stays prepared.
func (m *Manager) Deregister(ctx context.Context, p plugins.Plugin) {
	m.remove(ctx, p)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.drivers[p.Name]) == 0 {
		m.dropSlices(p.Name)
	}
}

// remove forgets the instance of a driver at an endpoint.
func (m *Manager) remove(ctx context.Context, p plugins.Plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drivers[p.Name] = slices.DeleteFunc(m.drivers[p.Name], func(d *driver) bool {
		if d.endpoint != p.Endpoint {
			return false
		}
		if err := d.conn.Close(); err != nil {
			klog.FromContext(ctx).Info("Failed to close connection to driver", "driver", p.Name, "err", err)
		}
		return true
	})
}

// Close closes the connections to the drivers.
func (m *Manager) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, instances := range m.drivers {
		for _, d := range instances {
			_ = d.conn.Close() // the agent ends
		}
	}
	clear(m.drivers)
}

// client returns the client of a driver: of its last instance that is not known to be
// unreachable, or else of the last one.
func (m *Manager) client(name string) (draapi.DRAPluginClient, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	instances := m.drivers[name]
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
