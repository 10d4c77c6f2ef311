package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"svc.dev/svc/svclet/plugins"
)

// callTimeout bounds each call of a driver: kubelet's.
const callTimeout = 2 * time.Minute

// driver is a registered driver.
type driver struct {
	spec.NodeClient
	name         string
	connection   *grpc.ClientConn
	capabilities map[spec.NodeServiceCapability_RPC_Type]bool
	node         *spec.NodeGetInfoResponse
}

func (d *driver) can(capability spec.NodeServiceCapability_RPC_Type) bool {
	return d.capabilities[capability]
}

// drivers are the registered drivers by name.
type drivers struct {
	mu  sync.Mutex
	all map[string]*driver
}

// get returns a registered driver.
func (d *drivers) get(name string) (*driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if found := d.all[name]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
}

// list returns the registered drivers.
func (d *drivers) list() []*driver {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.all))
}

// set adds a driver, or replaces one.
func (d *drivers) set(added *driver) {
	d.mu.Lock()
	old := d.all[added.name]
	d.all[added.name] = added
	d.mu.Unlock()
	if old != nil {
		old.connection.Close() // calls in flight fail and are repeated
	}
}

// remove removes a driver.
func (d *drivers) remove(name string) {
	d.mu.Lock()
	old := d.all[name]
	delete(d.all, name)
	d.mu.Unlock()
	if old != nil {
		old.connection.Close()
	}
}

// connect connects to a driver, and asks what it can and which node it runs on.
func connect(ctx context.Context, p plugins.Plugin) (*driver, error) {
	if !slices.ContainsFunc(p.Versions, isVersion1) {
		return nil, fmt.Errorf("CSI driver %s supports the versions %s: svclet needs 1.x.y", p.Name, strings.Join(p.Versions, ", "))
	}
	if !isName(p.Name) {
		return nil, fmt.Errorf("invalid name %q of a CSI driver: must be a DNS name of at most 63 characters", p.Name)
	}
	connection, err := grpc.NewClient("unix://"+p.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	d := &driver{NodeClient: spec.NewNodeClient(connection), name: p.Name, connection: connection, capabilities: map[spec.NodeServiceCapability_RPC_Type]bool{}}
	if err := d.describe(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("CSI driver %s: %w", p.Name, err), connection.Close())
	}
	return d, nil
}

func (d *driver) describe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var err error
	if d.node, err = d.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{}); err != nil {
		return fmt.Errorf("NodeGetInfo: %w", err)
	}
	if d.node.GetNodeId() == "" {
		return errors.New("NodeGetInfo: the driver has returned no node ID")
	}
	can, err := d.NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
	if err != nil {
		return fmt.Errorf("NodeGetCapabilities: %w", err)
	}
	for _, c := range can.GetCapabilities() {
		d.capabilities[c.GetRpc().GetType()] = true
	}
	return nil
}

// isVersion1 reports whether a version ("1.0.0", "v1.5") has the major number 1.
func isVersion1(version string) bool {
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	n, err := strconv.Atoi(major)
	return err == nil && n == 1
}

// isName reports whether a name can be that of a directory.
func isName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.ContainsAny(s, "/\x00")
}
