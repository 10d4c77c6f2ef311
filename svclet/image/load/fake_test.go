package load

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	diffapi "github.com/containerd/containerd/api/services/diff/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/opencontainers/go-digest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fake is a containerd with content and images in memory.
type fake struct {
	mu     sync.Mutex
	blobs  map[digest.Digest][]byte
	labels map[digest.Digest]map[string]string
	open   map[string][]byte // writes that have not ended
	images map[string]*imagesapi.Image
	leases map[string]bool
	// snapshots has the layers of each snapshot; those in the making have a space in their
	// keys. unpacked counts the layers that were unpacked.
	snapshots map[string][]digest.Digest
	unpacked  int
	// snapshotters are those of CRI.
	snapshotters []string
	// full is whether the disk has no space for content and leases.
	full bool
}

func (f *fake) setFull(full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = full
}

// space returns the error of a full disk.
func (f *fake) space() error {
	if f.full {
		return status.Error(codes.Unknown, "write ref: no space left on device")
	}
	return nil
}

func startFake(t *testing.T) (*fake, string) {
	t.Helper()
	f := &fake{
		blobs: map[digest.Digest][]byte{}, labels: map[digest.Digest]map[string]string{}, open: map[string][]byte{},
		images: map[string]*imagesapi.Image{}, leases: map[string]bool{},
		snapshots: map[string][]digest.Digest{}, snapshotters: []string{"overlayfs"},
	}
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	contentapi.RegisterContentServer(server, contentService{fake: f})
	imagesapi.RegisterImagesServer(server, imageService{fake: f})
	leasesapi.RegisterLeasesServer(server, leaseService{fake: f})
	snapshotsapi.RegisterSnapshotsServer(server, snapshotService{fake: f})
	diffapi.RegisterDiffServer(server, diffService{fake: f})
	runtimeapi.RegisterImageServiceServer(server, criService{fake: f})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before Serve
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return f, socket
}

// leased returns an error unless a request is for CRI's namespace and under an
// existing lease.
func (f *fake) leased(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	lease := md.Get("containerd-lease")
	if ns := md.Get("containerd-namespace"); len(ns) != 1 || ns[0] != "k8s.io" || len(lease) != 1 || !f.leases[lease[0]] {
		return status.Errorf(codes.FailedPrecondition, "namespace %v, lease %v", ns, lease)
	}
	return nil
}

type contentService struct {
	contentapi.UnimplementedContentServer
	*fake
}

func (f contentService) Write(stream contentapi.Content_WriteServer) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		response, err := f.write(stream.Context(), request)
		if err != nil {
			return err
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

func (f *fake) write(ctx context.Context, request *contentapi.WriteContentRequest) (*contentapi.WriteContentResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.leased(ctx); err != nil {
		return nil, err
	}
	if _, ok := f.blobs[digest.Digest(request.Expected)]; ok {
		delete(f.open, request.Ref)
		return nil, status.Error(codes.AlreadyExists, "it exists")
	}
	if have := int64(len(f.open[request.Ref])); request.Action != contentapi.WriteAction_STAT && request.Offset != have {
		return nil, status.Errorf(codes.OutOfRange, "offset %d of %d", request.Offset, have)
	}
	if err := f.space(); err != nil {
		return nil, err
	}
	f.open[request.Ref] = append(f.open[request.Ref], request.Data...)
	content := f.open[request.Ref]
	if request.Action == contentapi.WriteAction_COMMIT {
		got := digest.FromBytes(content)
		if request.Expected != got.String() || request.Total != int64(len(content)) {
			return nil, status.Error(codes.FailedPrecondition, "unexpected commit")
		}
		f.blobs[got] = content
		delete(f.open, request.Ref)
	}
	return &contentapi.WriteContentResponse{Action: request.Action, Offset: int64(len(content))}, nil
}

func (f contentService) Abort(_ context.Context, request *contentapi.AbortRequest) (*emptypb.Empty, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.open[request.Ref]; !ok {
		return nil, status.Error(codes.NotFound, "no such write")
	}
	delete(f.open, request.Ref)
	return &emptypb.Empty{}, nil
}

func (f contentService) Info(_ context.Context, request *contentapi.InfoRequest) (*contentapi.InfoResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, ok := f.blobs[digest.Digest(request.Digest)]
	if !ok {
		return nil, status.Error(codes.NotFound, "no such content")
	}
	return &contentapi.InfoResponse{Info: &contentapi.Info{Digest: request.Digest, Size: int64(len(content))}}, nil
}

func (f contentService) Read(request *contentapi.ReadContentRequest, stream contentapi.Content_ReadServer) error {
	f.mu.Lock()
	content := bytes.Clone(f.blobs[digest.Digest(request.Digest)])
	f.mu.Unlock()
	return stream.Send(&contentapi.ReadContentResponse{Data: content})
}

func (f contentService) Update(_ context.Context, request *contentapi.UpdateRequest) (*contentapi.UpdateResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := digest.Digest(request.Info.Digest)
	if f.labels[at] == nil {
		f.labels[at] = map[string]string{}
	}
	for _, path := range request.UpdateMask.Paths {
		key := path[len("labels."):]
		f.labels[at][key] = request.Info.Labels[key]
	}
	return &contentapi.UpdateResponse{Info: request.Info}, nil
}

type criService struct {
	runtimeapi.UnimplementedImageServiceServer
	*fake
}

func (f criService) ImageStatus(_ context.Context, request *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, image := range f.images {
		if id, err := digest.Parse(name); err == nil && f.images[request.Image.Image].GetTarget().GetDigest() == image.Target.Digest {
			return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: id.String()}}, nil
		}
	}
	return &runtimeapi.ImageStatusResponse{}, nil
}

func (f criService) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	response := &runtimeapi.ImageFsInfoResponse{}
	for _, name := range f.snapshotters {
		response.ImageFilesystems = append(response.ImageFilesystems, &runtimeapi.FilesystemUsage{
			FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/containerd/io.containerd.snapshotter.v1." + name},
		})
	}
	return response, nil
}

// snapshotService is the snapshotter overlayfs.
type snapshotService struct {
	snapshotsapi.UnimplementedSnapshotsServer
	*fake
}

func (f snapshotService) Stat(ctx context.Context, request *snapshotsapi.StatSnapshotRequest) (*snapshotsapi.StatSnapshotResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.snapshots[request.Key]; !ok || request.Snapshotter != "overlayfs" {
		return nil, status.Error(codes.NotFound, "no such snapshot")
	}
	return &snapshotsapi.StatSnapshotResponse{}, f.leased(ctx)
}

func (f snapshotService) Prepare(ctx context.Context, request *snapshotsapi.PrepareSnapshotRequest) (*snapshotsapi.PrepareSnapshotResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	parent, ok := f.snapshots[request.Parent]
	if request.Parent != "" && !ok {
		return nil, status.Error(codes.NotFound, "no such parent")
	}
	f.snapshots[request.Key] = slices.Clone(parent)
	return &snapshotsapi.PrepareSnapshotResponse{Mounts: []*types.Mount{{Source: request.Key}}}, f.leased(ctx)
}

func (f snapshotService) Commit(ctx context.Context, request *snapshotsapi.CommitSnapshotRequest) (*emptypb.Empty, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snapshots[request.Name] = f.snapshots[request.Key]
	delete(f.snapshots, request.Key)
	return &emptypb.Empty{}, f.leased(ctx)
}

func (f snapshotService) Remove(_ context.Context, request *snapshotsapi.RemoveSnapshotRequest) (*emptypb.Empty, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.snapshots, request.Key)
	return &emptypb.Empty{}, nil
}

type diffService struct {
	diffapi.UnimplementedDiffServer
	*fake
}

func (f diffService) Apply(ctx context.Context, request *diffapi.ApplyRequest) (*diffapi.ApplyResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, ok := f.blobs[digest.Digest(request.Diff.Digest)]
	if !ok || len(content) != int(request.Diff.Size) || len(request.Mounts) != 1 {
		return nil, status.Errorf(codes.NotFound, "no such layer: %v", request.Diff)
	}
	f.unpacked++
	key := request.Mounts[0].Source
	f.snapshots[key] = append(f.snapshots[key], digest.FromBytes(content))
	return &diffapi.ApplyResponse{Applied: &types.Descriptor{Digest: digest.FromBytes(content).String()}}, f.leased(ctx)
}

type imageService struct {
	imagesapi.UnimplementedImagesServer
	*fake
}

func (f imageService) Create(_ context.Context, request *imagesapi.CreateImageRequest) (*imagesapi.CreateImageResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.images[request.Image.Name] != nil {
		return nil, status.Error(codes.AlreadyExists, "it exists")
	}
	f.images[request.Image.Name] = request.Image
	return &imagesapi.CreateImageResponse{Image: request.Image}, nil
}

func (f imageService) Update(_ context.Context, request *imagesapi.UpdateImageRequest) (*imagesapi.UpdateImageResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images[request.Image.Name] = request.Image
	return &imagesapi.UpdateImageResponse{Image: request.Image}, nil
}

type leaseService struct {
	leasesapi.UnimplementedLeasesServer
	*fake
}

func (f leaseService) Create(_ context.Context, request *leasesapi.CreateRequest) (*leasesapi.CreateResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.space(); err != nil {
		return nil, err
	}
	f.leases[request.ID] = true
	return &leasesapi.CreateResponse{Lease: &leasesapi.Lease{ID: request.ID}}, nil
}

func (f leaseService) Delete(_ context.Context, request *leasesapi.DeleteRequest) (*emptypb.Empty, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.leases, request.ID)
	return &emptypb.Empty{}, nil
}

func (f leaseService) AddResource(context.Context, *leasesapi.AddResourceRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}
