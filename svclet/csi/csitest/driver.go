package csitest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Options configure a driver.
type Options struct {
	Name, NodeID string
	// Registry is the directory of registration sockets of the agent.
	Registry string
	// Dir is the driver's own directory, for its socket and its volumes.
	Dir string
	// Capabilities are those of the node's service.
	Capabilities []spec.NodeServiceCapability_RPC_Type
	Topology     map[string]string
	// Mount and Unmount publish a volume; by default directories are made and removed.
	Mount   func(source, target string) error
	Unmount func(target string) error
	// Backend makes the driver serve the controller service, for its volumes. It may be nil.
	Backend *Backend
	// Called is called with each call of the driver, and the request, before it is handled. It
	// may be nil.
	Called func(method string, request any)
}

// Driver is a running driver.
type Driver struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedNodeServer
	registerapi.UnimplementedRegistrationServer
	o       Options
	servers []*grpc.Server
	sockets []string

	mu sync.Mutex
	// calls are "method handle", published are the requests of NodePublishVolume.
	calls      []string
	published  []*spec.NodePublishVolumeRequest
	staged     []*spec.NodeStageVolumeRequest
	expanded   []*spec.NodeExpandVolumeRequest
	failures   map[string]error
	condition  string
	maxVolumes int64
	registered []*registerapi.RegistrationStatus
}

// Start starts a driver and its registration.
func Start(o Options) (*Driver, error) {
	if o.Mount == nil {
		o.Mount = func(_, target string) error {
			if _, err := os.Stat(target); err == nil {
				return nil // the file for a device
			}
			return os.MkdirAll(target, 0o750)
		}
		o.Unmount = os.RemoveAll
	}
	d := &Driver{o: o, failures: map[string]error{}, maxVolumes: 7}
	err := d.serve(d.Endpoint(), func(s *grpc.Server) {
		spec.RegisterIdentityServer(s, d)
		spec.RegisterNodeServer(s, d)
		if o.Backend != nil {
			spec.RegisterControllerServer(s, controller{Driver: d, Backend: o.Backend})
		}
	})
	if err == nil {
		err = d.serve(filepath.Join(o.Registry, o.Name+"-reg.sock"), func(s *grpc.Server) { registerapi.RegisterRegistrationServer(s, d) })
	}
	if err != nil {
		d.Stop()
		return nil, err
	}
	return d, nil
}

// Endpoint is the path of the driver's socket.
func (d *Driver) Endpoint() string { return filepath.Join(d.o.Dir, "csi.sock") }

func (d *Driver) serve(socket string, register func(*grpc.Server)) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if d.o.Called != nil {
			d.o.Called(path.Base(info.FullMethod), request)
		}
		return handle(ctx, request)
	}))
	register(server)
	d.servers, d.sockets = append(d.servers, server), append(d.sockets, socket)
	go func() { _ = server.Serve(listener) }() // it ends with Stop
	return nil
}

// Stop ends the driver. Its volumes stay.
func (d *Driver) Stop() {
	for _, server := range d.servers {
		server.Stop()
	}
	for _, socket := range d.sockets {
		_ = os.Remove(socket) // Serve has removed it, if it has listened
	}
}

// Fail makes a method fail from now on, or succeed with nil. The code of an error without one is
// Internal.
func (d *Driver) Fail(method string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failures[method] = err
}

// SetMaxVolumes sets how many volumes the node may have.
func (d *Driver) SetMaxVolumes(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.maxVolumes = n
}

// SetCondition sets what is wrong with all volumes; nothing if it is empty.
func (d *Driver) SetCondition(wrong string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.condition = wrong
}

// Calls returns the calls so far, as "method handle".
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Published returns the requests to publish volumes, Staged those to stage them, Expanded
// those to expand them.
func (d *Driver) Published() []*spec.NodePublishVolumeRequest { return copyOf(d, &d.published) }
func (d *Driver) Staged() []*spec.NodeStageVolumeRequest      { return copyOf(d, &d.staged) }
func (d *Driver) Expanded() []*spec.NodeExpandVolumeRequest   { return copyOf(d, &d.expanded) }

// Registered returns what the agent has told the driver of its registration.
func (d *Driver) Registered() []*registerapi.RegistrationStatus { return copyOf(d, &d.registered) }

func copyOf[T any](d *Driver, list *[]T) []T {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(*list)
}

// call records a call, and returns the error that it is to return.
func (d *Driver) call(method, handle string, record func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, method+" "+handle)
	record()
	if err := d.failures[method]; err != nil {
		if _, ok := status.FromError(err); ok {
			return err
		}
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// GetInfo implements registerapi.RegistrationServer.
func (d *Driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: d.o.Name, Endpoint: d.Endpoint(), SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus implements registerapi.RegistrationServer.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registered = append(d.registered, s)
	return &registerapi.RegistrationStatusResponse{}, nil
}

// NodeGetInfo implements spec.NodeServer.
func (d *Driver) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	info := &spec.NodeGetInfoResponse{NodeId: d.o.NodeID, MaxVolumesPerNode: d.maxVolumes}
	if d.o.Topology != nil {
		info.AccessibleTopology = &spec.Topology{Segments: d.o.Topology}
	}
	return info, nil
}

// NodeGetCapabilities implements spec.NodeServer.
func (d *Driver) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	response := &spec.NodeGetCapabilitiesResponse{}
	for _, c := range d.o.Capabilities {
		response.Capabilities = append(response.Capabilities, &spec.NodeServiceCapability{
			Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return response, nil
}

// NodeStageVolume implements spec.NodeServer.
func (d *Driver) NodeStageVolume(_ context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	if err := d.call("stage", r.GetVolumeId(), func() { d.staged = append(d.staged, r) }); err != nil {
		return nil, err
	}
	if info, err := os.Stat(r.GetStagingTargetPath()); err != nil || !info.IsDir() {
		return nil, status.Error(codes.FailedPrecondition, "the staging path is not a directory")
	}
	return &spec.NodeStageVolumeResponse{}, nil
}

// NodeUnstageVolume implements spec.NodeServer.
func (d *Driver) NodeUnstageVolume(_ context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	return &spec.NodeUnstageVolumeResponse{}, d.call("unstage", r.GetVolumeId(), func() {})
}

// NodePublishVolume implements spec.NodeServer.
func (d *Driver) NodePublishVolume(_ context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	if err := d.call("publish", r.GetVolumeId(), func() { d.published = append(d.published, r) }); err != nil {
		return nil, err
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		return &spec.NodePublishVolumeResponse{}, d.publishDevice(r.GetVolumeId(), r.GetTargetPath())
	}
	if _, err := os.Stat(r.GetTargetPath()); err == nil {
		return &spec.NodePublishVolumeResponse{}, nil
	}
	source := filepath.Join(d.o.Dir, "volumes", r.GetVolumeId())
	if err := errors.Join(os.MkdirAll(source, 0o755), d.o.Mount(source, r.GetTargetPath())); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &spec.NodePublishVolumeResponse{}, nil
}

// publishDevice publishes a device: the file that the volume's directory links to.
func (d *Driver) publishDevice(handle, target string) error {
	device, err := os.Readlink(filepath.Join(d.o.Dir, "devices", handle))
	if err != nil {
		return status.Error(codes.NotFound, fmt.Sprintf("no device: %v", err))
	}
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		return err
	}
	return d.o.Mount(device, target)
}

// NodeUnpublishVolume implements spec.NodeServer.
func (d *Driver) NodeUnpublishVolume(_ context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	if err := d.call("unpublish", r.GetVolumeId(), func() {}); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(r.GetTargetPath()); err != nil {
		return &spec.NodeUnpublishVolumeResponse{}, nil
	}
	return &spec.NodeUnpublishVolumeResponse{}, d.o.Unmount(r.GetTargetPath())
}

// NodeExpandVolume implements spec.NodeServer.
func (d *Driver) NodeExpandVolume(_ context.Context, r *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	err := d.call("expand", r.GetVolumeId(), func() { d.expanded = append(d.expanded, r) })
	return &spec.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, err
}

// NodeGetVolumeStats implements spec.NodeServer.
func (d *Driver) NodeGetVolumeStats(_ context.Context, r *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	response := &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{
		{Unit: spec.VolumeUsage_BYTES, Total: 1000, Used: 400, Available: 600},
		{Unit: spec.VolumeUsage_INODES, Total: 100, Used: 10, Available: 90},
	}}
	return response, d.call("measure", r.GetVolumeId(), func() {
		response.VolumeCondition = &spec.VolumeCondition{Abnormal: d.condition != "", Message: d.condition}
	})
}
