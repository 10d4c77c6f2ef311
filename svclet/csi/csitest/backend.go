package csitest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Backend is a storage system whose volumes the controller service of drivers creates and
// attaches. It outlives them. The volumes are the directories below Dir/volumes that the
// node service publishes, the snapshots those below Dir/snapshots.
type Backend struct {
	// Dir is the directory of the drivers, [Options.Dir].
	Dir string
	// Capabilities are those of the controller service.
	Capabilities []spec.ControllerServiceCapability_RPC_Type
	// Grows is how the driver expands volumes: offline, or online too. Zero is not at all.
	Grows spec.PluginCapability_VolumeExpansion_Type

	mu        sync.Mutex
	capacity  int64
	volumes   map[string]*BackendVolume
	snapshots map[string]*spec.Snapshot
}

// BackendVolume is a volume of a [Backend].
type BackendVolume struct {
	Bytes int64
	// Parameters are those of the class it was created with, Mutable those of its
	// VolumeAttributesClass.
	Parameters, Mutable map[string]string
	// Nodes are the IDs of those that it is attached to.
	Nodes []string
	// Topology is where it was created, nil for everywhere.
	Topology *spec.Topology
}

// SetCapacity sets how much space the backend reports, in bytes. It does not limit volumes.
func (b *Backend) SetCapacity(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.capacity = bytes
}

// Volumes returns copies of the volumes, by their IDs.
func (b *Backend) Volumes() map[string]BackendVolume {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]BackendVolume{}
	for id, v := range b.volumes {
		all[id] = BackendVolume{v.Bytes, v.Parameters, v.Mutable, slices.Clone(v.Nodes), v.Topology}
	}
	return all
}

// Snapshots returns the IDs of the snapshots.
func (b *Backend) Snapshots() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for id := range b.snapshots {
		all = append(all, id)
	}
	slices.Sort(all)
	return all
}

func (b *Backend) dir(kind, id string) string { return filepath.Join(b.Dir, kind, id) }

// copyDir makes a directory that has the content of another, nothing if that is empty.
func copyDir(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil || from == "" {
		return err
	}
	out, err := exec.CommandContext(ctx, "cp", "-a", from+"/.", to).CombinedOutput()
	if err != nil {
		return status.Errorf(codes.Internal, "copying %s: %v: %s", from, err, out)
	}
	return nil
}

// controller is the controller service of a driver.
type controller struct {
	spec.UnimplementedControllerServer
	*Driver
	*Backend
}

// ControllerGetCapabilities implements spec.ControllerServer.
func (c controller) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	response := &spec.ControllerGetCapabilitiesResponse{}
	for _, t := range c.Backend.Capabilities {
		response.Capabilities = append(response.Capabilities, &spec.ControllerServiceCapability{
			Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return response, nil
}

// CreateVolume implements spec.ControllerServer. The name is the volume's ID.
func (c controller) CreateVolume(ctx context.Context, r *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	id := r.GetName()
	if err := c.call("create", id, func() {}); err != nil {
		return nil, err
	}
	c.Backend.mu.Lock()
	defer c.Backend.mu.Unlock()
	v, exists := c.volumes[id]
	if !exists {
		from := ""
		switch source := r.GetVolumeContentSource(); {
		case source.GetSnapshot() != nil:
			from = c.dir("snapshots", source.GetSnapshot().GetSnapshotId())
		case source.GetVolume() != nil:
			from = c.dir("volumes", source.GetVolume().GetVolumeId())
		}
		if err := copyDir(ctx, from, c.dir("volumes", id)); err != nil {
			return nil, err
		}
		v = &BackendVolume{Bytes: r.GetCapacityRange().GetRequiredBytes(), Parameters: r.GetParameters(), Mutable: r.GetMutableParameters()}
		if wanted := r.GetAccessibilityRequirements().GetPreferred(); len(wanted) > 0 {
			v.Topology = wanted[0]
		}
		if c.volumes == nil {
			c.volumes = map[string]*BackendVolume{}
		}
		c.volumes[id] = v
	}
	created := &spec.Volume{VolumeId: id, CapacityBytes: v.Bytes, ContentSource: r.GetVolumeContentSource(), VolumeContext: r.GetParameters()}
	if v.Topology != nil {
		created.AccessibleTopology = []*spec.Topology{v.Topology}
	}
	return &spec.CreateVolumeResponse{Volume: created}, nil
}

// DeleteVolume implements spec.ControllerServer.
func (c controller) DeleteVolume(_ context.Context, r *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	id := r.GetVolumeId()
	if err := c.call("delete", id, func() {}); err != nil {
		return nil, err
	}
	c.Backend.mu.Lock()
	defer c.Backend.mu.Unlock()
	if v := c.volumes[id]; v != nil && len(v.Nodes) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to %v", id, v.Nodes)
	}
	delete(c.volumes, id)
	return &spec.DeleteVolumeResponse{}, os.RemoveAll(c.dir("volumes", id))
}

// volume returns a volume. The caller holds c.Backend.mu.
func (c controller) volume(id string) (*BackendVolume, error) {
	if v := c.volumes[id]; v != nil {
		return v, nil
	}
	return nil, status.Errorf(codes.NotFound, "volume %s does not exist", id)
}

// ControllerPublishVolume implements spec.ControllerServer.
func (c controller) ControllerPublishVolume(_ context.Context, r *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	id, node := r.GetVolumeId(), r.GetNodeId()
	if err := c.call("attach", id, func() {}); err != nil {
		return nil, err
	}
	c.Backend.mu.Lock()
	defer c.Backend.mu.Unlock()
	v, err := c.volume(id)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(v.Nodes, node) {
		if len(v.Nodes) > 0 {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to %v", id, v.Nodes)
		}
		v.Nodes = append(v.Nodes, node)
	}
	return &spec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"attached": node}}, nil
}

// ControllerUnpublishVolume implements spec.ControllerServer.
func (c controller) ControllerUnpublishVolume(_ context.Context, r *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	if err := c.call("detach", r.GetVolumeId(), func() {}); err != nil {
		return nil, err
	}
	c.Backend.mu.Lock()
	defer c.Backend.mu.Unlock()
	if v := c.volumes[r.GetVolumeId()]; v != nil {
		v.Nodes = slices.DeleteFunc(v.Nodes, func(node string) bool { return node == r.GetNodeId() })
	}
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

// ControllerExpandVolume implements spec.ControllerServer. The node has to expand the file
// system.
func (c controller) ControllerExpandVolume(_ context.Context, r *spec.ControllerExpandVolumeRequest) (*spec.ControllerExpandVolumeResponse, error) {
	if err := c.call("grow", r.GetVolumeId(), func() {}); err != nil {
		return nil, err
	}
	c.Backend.mu.Lock()
	defer c.Backend.mu.Unlock()
	v, err := c.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	v.Bytes = max(v.Bytes, r.GetCapacityRange().GetRequiredBytes())
	return &spec.ControllerExpandVolumeResponse{CapacityBytes: v.Bytes, NodeExpansionRequired: true}, nil
}

// ControllerModifyVolume implements spec.ControllerServer.
func (c controller) ControllerModifyVolume(_ context.Context, r *spec.ControllerModifyVolumeRequest) (*spec.ControllerModifyVolumeResponse, error) {
	if err := c.call("modify", r.GetVolumeId(), func() {}); err != nil {
		return nil, err
	}
	c.Backend.mu.Lock()
	defer c.Backend.mu.Unlock()
	v, err := c.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	v.Mutable = r.GetMutableParameters()
	return &spec.ControllerModifyVolumeResponse{}, nil
}

// GetCapacity implements spec.ControllerServer.
func (c controller) GetCapacity(context.Context, *spec.GetCapacityRequest) (*spec.GetCapacityResponse, error) {
	c.Backend.mu.Lock()
	defer c.Backend.mu.Unlock()
	return &spec.GetCapacityResponse{AvailableCapacity: c.capacity}, nil
}

// CreateSnapshot implements spec.ControllerServer. The name is the snapshot's ID.
func (c controller) CreateSnapshot(ctx context.Context, r *spec.CreateSnapshotRequest) (*spec.CreateSnapshotResponse, error) {
	id := r.GetName()
	if err := c.call("snapshot", id, func() {}); err != nil {
		return nil, err
	}
	c.Backend.mu.Lock()
	defer c.Backend.mu.Unlock()
	if s := c.snapshots[id]; s != nil {
		return &spec.CreateSnapshotResponse{Snapshot: s}, nil
	}
	v, err := c.volume(r.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	if err := copyDir(ctx, c.dir("volumes", r.GetSourceVolumeId()), c.dir("snapshots", id)); err != nil {
		return nil, err
	}
	s := &spec.Snapshot{SnapshotId: id, SourceVolumeId: r.GetSourceVolumeId(), SizeBytes: v.Bytes, CreationTime: timestamppb.Now(), ReadyToUse: true}
	if c.snapshots == nil {
		c.snapshots = map[string]*spec.Snapshot{}
	}
	c.snapshots[id] = s
	return &spec.CreateSnapshotResponse{Snapshot: s}, nil
}

// DeleteSnapshot implements spec.ControllerServer.
func (c controller) DeleteSnapshot(_ context.Context, r *spec.DeleteSnapshotRequest) (*spec.DeleteSnapshotResponse, error) {
	if err := c.call("forget", r.GetSnapshotId(), func() {}); err != nil {
		return nil, err
	}
	c.Backend.mu.Lock()
	defer c.Backend.mu.Unlock()
	delete(c.snapshots, r.GetSnapshotId())
	return &spec.DeleteSnapshotResponse{}, os.RemoveAll(c.dir("snapshots", r.GetSnapshotId()))
}

// GetPluginInfo implements spec.IdentityServer.
func (d *Driver) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: d.o.Name, VendorVersion: "1"}, nil
}

// Probe implements spec.IdentityServer.
func (d *Driver) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{}, nil
}

// GetPluginCapabilities implements spec.IdentityServer.
func (d *Driver) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	response := &spec.GetPluginCapabilitiesResponse{}
	service := func(t spec.PluginCapability_Service_Type) {
		response.Capabilities = append(response.Capabilities, &spec.PluginCapability{
			Type: &spec.PluginCapability_Service_{Service: &spec.PluginCapability_Service{Type: t}},
		})
	}
	if d.o.Backend == nil {
		return response, nil
	}
	service(spec.PluginCapability_Service_CONTROLLER_SERVICE)
	if d.o.Topology != nil {
		service(spec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	if grows := d.o.Backend.Grows; grows != spec.PluginCapability_VolumeExpansion_UNKNOWN {
		response.Capabilities = append(response.Capabilities, &spec.PluginCapability{
			Type: &spec.PluginCapability_VolumeExpansion_{VolumeExpansion: &spec.PluginCapability_VolumeExpansion{Type: grows}},
		})
	}
	return response, nil
}
