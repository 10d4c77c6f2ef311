package devices

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"svc.dev/svc/svclet/plugins"
)

// plugin is a connected device plugin.
type plugin struct {
	resource string
	endpoint string // the path of its socket
	options  *pluginapi.DevicePluginOptions
	client   pluginapi.DevicePluginClient
	stop     context.CancelFunc
}

// Socket is the name of the registration socket in [Options.Dir].
const Socket = "kubelet.sock"

// Run serves the registration of plugins until ctx is done. It removes the sockets of
// plugins first, by which they notice that they have to register again.
func (m *Manager) Run(ctx context.Context) {
	defer m.plugins.Wait()
	logger := klog.FromContext(ctx)
	listener, err := m.listen()
	if err != nil {
		logger.Error(err, "Failed to listen for device plugins, the node has no devices", "dir", m.o.Dir)
		return
	}
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, &registration{m: m, ctx: ctx})
	stopped := context.AfterFunc(ctx, server.Stop)
	defer stopped()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		logger.Error(err, "Failed to serve the registration of device plugins")
	}
}

func (m *Manager) listen() (net.Listener, error) {
	if err := os.MkdirAll(m.o.Dir, 0o750); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(m.o.Dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Type() == os.ModeSocket {
			if err := os.Remove(filepath.Join(m.o.Dir, entry.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
		}
	}
	return net.Listen("unix", filepath.Join(m.o.Dir, Socket))
}

// registration is the server of the API Registration.
type registration struct {
	pluginapi.UnimplementedRegistrationServer
	m   *Manager
	ctx context.Context
}

// Register implements pluginapi.RegistrationServer.
func (r *registration) Register(_ context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	if request.GetVersion() != pluginapi.Version {
		return nil, status.Errorf(codes.InvalidArgument, "unsupported version %q of the device plugin API: must be %s", request.GetVersion(), pluginapi.Version)
	}
	if problem := invalidResource(request.GetResourceName()); problem != "" {
		return nil, status.Errorf(codes.InvalidArgument, "resource %q: %s", request.GetResourceName(), problem)
	}
	if endpoint := request.GetEndpoint(); endpoint == "" || filepath.Base(endpoint) != endpoint {
		return nil, status.Errorf(codes.InvalidArgument, "endpoint %q: must be the name of a socket in the directory of %s", endpoint, Socket)
	}
	if err := r.m.connect(r.ctx, request.GetResourceName(), filepath.Join(r.m.o.Dir, request.GetEndpoint()), request.GetOptions()); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &pluginapi.Empty{}, nil
}

// invalidResource returns why a name is not that of an extended resource.
func invalidResource(name string) string {
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		return problems[0]
	}
	if !isExtended(name) {
		return "must be that of an extended resource, as example.com/device"
	}
	return ""
}

// Register implements plugins.Handler, for plugins that are found by their registration
// socket.
func (m *Manager) Register(ctx context.Context, p plugins.Plugin) error {
	if !slices.Contains(p.Versions, pluginapi.Version) {
		return fmt.Errorf("unsupported versions %s of the device plugin API: must have %s", strings.Join(p.Versions, ", "), pluginapi.Version)
	}
	if problem := invalidResource(p.Name); problem != "" {
		return fmt.Errorf("resource %q: %s", p.Name, problem)
	}
	return m.connect(ctx, p.Name, p.Endpoint, nil)
}

// Deregister implements plugins.Handler. A plugin at another socket that has replaced p stays.
func (m *Manager) Deregister(_ context.Context, p plugins.Plugin) {
	if of := m.pluginOf(p.Name); of != nil && of.endpoint == p.Endpoint {
		of.stop()
	}
}

// connect connects to the plugin of a resource that has registered, and follows its
// devices. Without options it asks for them.
func (m *Manager) connect(ctx context.Context, resource, endpoint string, options *pluginapi.DevicePluginOptions) error {
	conn, err := grpc.NewClient("unix://"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", endpoint, err)
	}
	client := pluginapi.NewDevicePluginClient(conn)
	if options == nil {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if options, err = client.GetDevicePluginOptions(call, &pluginapi.Empty{}); err != nil {
			return errors.Join(fmt.Errorf("endpoint %s: %w", endpoint, err), conn.Close())
		}
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(err, conn.Close())
	}
	ctx, stop := context.WithCancel(ctx)
	p := &plugin{resource: resource, endpoint: endpoint, options: options, client: client, stop: stop}
	if before := m.connected(p); before != nil {
		before.stop()
	}
	m.o.Registered(p.resource)
	klog.FromContext(ctx).Info("Registered device plugin", "resource", p.resource, "endpoint", endpoint)
	m.plugins.Go(func() {
		defer conn.Close()
		defer stop()
		err := m.follow(ctx, p)
		m.ended(p)
		if ctx.Err() == nil {
			klog.FromContext(ctx).Info("Device plugin has ended, its devices are not healthy until it registers again", "resource", p.resource, "err", err)
		}
	})
	return nil
}

// follow receives the devices of a plugin until it ends.
func (m *Manager) follow(ctx context.Context, p *plugin) error {
	stream, err := p.client.ListAndWatch(ctx, &pluginapi.Empty{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return err
		}
		m.update(p, list.GetDevices())
	}
}
