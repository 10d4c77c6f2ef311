package devicetest

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Options configure a plugin.
type Options struct {
	// Resource is the name of its devices, which have the names Devices.
	Resource string
	Devices  []string
	// Registry is the directory of registration sockets of the agent, Dir the plugin's own.
	Registry, Dir string
	// Response is what a container gets for its devices; by default nothing.
	Response *pluginapi.ContainerAllocateResponse
	// Called is called with each call that it gets, and the request.
	Called func(method string, request any)
}

// Plugin is a running plugin. It prefers the last ones of the devices that a container may have,
// and wants to prepare them.
type Plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	registerapi.UnimplementedRegistrationServer
	o       Options
	servers []*grpc.Server
	changed chan []*pluginapi.Device
}

// Start starts a plugin and its registration.
func Start(o Options) (*Plugin, error) {
	p := &Plugin{o: o, changed: make(chan []*pluginapi.Device)}
	err := errors.Join(
		p.serve(p.endpoint(), func(s *grpc.Server) { pluginapi.RegisterDevicePluginServer(s, p) }),
		p.serve(filepath.Join(o.Registry, filepath.Base(o.Resource)+"-reg.sock"), func(s *grpc.Server) { registerapi.RegisterRegistrationServer(s, p) }),
	)
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

func (p *Plugin) endpoint() string { return filepath.Join(p.o.Dir, "plugin.sock") }

func (p *Plugin) serve(socket string, register func(*grpc.Server)) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	register(server)
	p.servers = append(p.servers, server)
	go func() { _ = server.Serve(listener) }() // it ends with Stop, and removes the socket
	return nil
}

// Stop ends the plugin.
func (p *Plugin) Stop() {
	for _, server := range p.servers {
		server.Stop()
	}
}

// GetInfo implements registerapi.RegistrationServer.
func (p *Plugin) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.DevicePlugin, Name: p.o.Resource, Endpoint: p.endpoint(), SupportedVersions: []string{pluginapi.Version}}, nil
}

// NotifyRegistrationStatus implements registerapi.RegistrationServer.
func (p *Plugin) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	p.o.Called("NotifyRegistrationStatus", s)
	return &registerapi.RegistrationStatusResponse{}, nil
}

// GetDevicePluginOptions implements pluginapi.DevicePluginServer.
func (p *Plugin) GetDevicePluginOptions(_ context.Context, r *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	p.o.Called("GetDevicePluginOptions", r)
	return &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, nil
}

// ListAndWatch implements pluginapi.DevicePluginServer.
func (p *Plugin) ListAndWatch(r *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	p.o.Called("ListAndWatch", r)
	for devices := p.devices(nil); ; {
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case devices = <-p.changed:
		}
	}
}

// SetUnhealthy makes devices unhealthy, and all others healthy. It returns when the agent has
// been told, or with the error of ctx.
func (p *Plugin) SetUnhealthy(ctx context.Context, names ...string) error {
	select {
	case p.changed <- p.devices(names):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// devices returns all devices.
func (p *Plugin) devices(unhealthy []string) []*pluginapi.Device {
	var all []*pluginapi.Device
	for _, name := range p.o.Devices {
		health := pluginapi.Healthy
		if slices.Contains(unhealthy, name) {
			health = pluginapi.Unhealthy
		}
		all = append(all, &pluginapi.Device{ID: name, Health: health})
	}
	return all
}

// GetPreferredAllocation implements pluginapi.DevicePluginServer.
func (p *Plugin) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	p.o.Called("GetPreferredAllocation", r)
	response := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.GetContainerRequests() {
		wanted := slices.Clone(c.GetMustIncludeDeviceIDs())
		for _, name := range slices.Backward(slices.Sorted(slices.Values(c.GetAvailableDeviceIDs()))) {
			if len(wanted) < int(c.GetAllocationSize()) && !slices.Contains(wanted, name) {
				wanted = append(wanted, name)
			}
		}
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: wanted})
	}
	return response, nil
}

// Allocate implements pluginapi.DevicePluginServer.
func (p *Plugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	p.o.Called("Allocate", r)
	response := &pluginapi.AllocateResponse{}
	for range r.GetContainerRequests() {
		response.ContainerResponses = append(response.ContainerResponses, cmp.Or(p.o.Response, &pluginapi.ContainerAllocateResponse{}))
	}
	return response, nil
}

// PreStartContainer implements pluginapi.DevicePluginServer.
func (p *Plugin) PreStartContainer(_ context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	p.o.Called("PreStartContainer", r)
	return &pluginapi.PreStartContainerResponse{}, nil
}
