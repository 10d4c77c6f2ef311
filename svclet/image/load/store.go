package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	diffapi "github.com/containerd/containerd/api/services/diff/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"k8s.io/apimachinery/pkg/util/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// namespace is the containerd namespace of CRI's images.
const namespace = "k8s.io"

// containerd's labels: of images that CRI manages and must not remove, of the
// expiry of a lease, and of garbage collection references.
const (
	labelManaged = "io.cri-containerd.image"
	labelPinned  = "io.cri-containerd.pinned"
	labelExpire  = "containerd.io/gc.expire"
	labelRef     = "containerd.io/gc.ref.content."
)

const (
	// leaseTime bounds how long the content of a killed import is kept.
	leaseTime = 24 * time.Hour
	// chunk is the size of one write, in bytes.
	chunk = 512 << 10
	// noticeTimeout bounds how long CRI takes to notice a new image.
	noticeTimeout = 30 * time.Second
	noticePoll    = 10 * time.Millisecond
	closeTimeout  = 5 * time.Second
)

// store is a connection to containerd for one import.
type store struct {
	conn      *grpc.ClientConn
	ctx       context.Context // with the namespace and the lease
	content   contentapi.ContentClient
	images    imagesapi.ImagesClient
	leases    leasesapi.LeasesClient
	snapshots snapshotsapi.SnapshotsClient
	diffs     diffapi.DiffClient
	cri       runtimeapi.ImageServiceClient
	clock     clock.WithTicker
	lease     string
	written   int
	buffer    []byte
}

func open(ctx context.Context, opts Options) (*store, error) {
	conn, err := dial(ctx, opts.Endpoint, opts.StartedBy)
	if err != nil {
		return nil, err
	}
	s := &store{
		conn:      conn,
		clock:     opts.Clock,
		content:   contentapi.NewContentClient(conn),
		images:    imagesapi.NewImagesClient(conn),
		leases:    leasesapi.NewLeasesClient(conn),
		snapshots: snapshotsapi.NewSnapshotsClient(conn),
		diffs:     diffapi.NewDiffClient(conn),
		cri:       runtimeapi.NewImageServiceClient(conn),
		lease:     "svc-import-" + string(uuid.NewUUID()),
		buffer:    make([]byte, chunk),
	}
	s.ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	_, err = s.leases.Create(s.ctx, &leasesapi.CreateRequest{ID: s.lease, Labels: map[string]string{
		labelExpire: opts.Clock.Now().Add(leaseTime).UTC().Format(time.RFC3339),
	}})
	if err != nil {
		conn.Close()
		if status.Code(err) == codes.Unimplemented {
			return nil, fmt.Errorf("what answers at %s is not containerd: images can only be imported into containerd", opts.Endpoint)
		}
		return nil, fmt.Errorf("reach containerd at %s: %w", opts.Endpoint, plain(err))
	}
	s.ctx = metadata.AppendToOutgoingContext(s.ctx, "containerd-lease", s.lease)
	return s, nil
}

// dial connects to containerd's socket: a path, or a URL with the scheme unix. startedBy is
// that of Options.
func dial(ctx context.Context, endpoint, startedBy string) (*grpc.ClientConn, error) {
	if !strings.Contains(endpoint, "://") {
		endpoint = "unix://" + endpoint
	}
	if socket, ok := strings.CutPrefix(endpoint, "unix://"); ok {
		// Without this check gRPC would log that the socket does not exist.
		probe, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, fmt.Errorf("no containerd answers at %s: %s, or name another endpoint (%w)", endpoint, remedy(err, startedBy), err)
		}
		probe.Close()
	}
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("reach containerd at %s: %w", endpoint, err)
	}
	return conn, nil
}

// remedy returns what to do when a socket cannot be connected to. startedBy is that of Options.
func remedy(err error, startedBy string) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "it is root's, use sudo"
	case startedBy != "":
		return fmt.Sprintf("start it with '%s'", startedBy)
	}
	return "start it"
}

// close deletes the lease: unreferenced content can then be garbage collected.
func (s *store) close() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), closeTimeout)
	defer cancel()
	_, err := s.leases.Delete(ctx, &leasesapi.DeleteRequest{ID: s.lease})
	return errors.Join(plain(err), s.conn.Close())
}

// write implements writeBlob.
func (s *store) write(r io.Reader, size int64, want digest.Digest) (digest.Digest, error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel() // ends the stream
	s.written++
	w := upload{ref: fmt.Sprintf("%s-%d", s.lease, s.written), size: size, want: want, sum: digest.SHA256.Digester()}
	if want != "" {
		w.sum = want.Algorithm().Digester()
	}
	var err error
	if w.stream, err = s.content.Write(ctx); err != nil {
		return "", plain(err)
	}
	got, err := w.copy(r, s.buffer)
	if err == nil {
		return got, nil
	}
	_, abortErr := s.content.Abort(context.WithoutCancel(s.ctx), &contentapi.AbortRequest{Ref: w.ref})
	if status.Code(abortErr) == codes.NotFound {
		abortErr = nil
	}
	return "", errors.Join(plain(err), plain(abortErr))
}

// upload is the write of one blob.
type upload struct {
	stream contentapi.Content_WriteClient
	ref    string
	size   int64
	want   digest.Digest // or ""
	sum    digest.Digester
}

// copy sends r, unless containerd has the blob already; the digest is checked in
// either case.
func (w upload) copy(r io.Reader, buffer []byte) (digest.Digest, error) {
	response, err := w.send(&contentapi.WriteContentRequest{Action: contentapi.WriteAction_STAT, Ref: w.ref, Total: w.size, Expected: w.want.String()})
	there := status.Code(err) == codes.AlreadyExists
	if err != nil && !there {
		return "", err
	}
	// Content of another namespace is shared: it is complete, and only has to be
	// committed.
	from := response.GetOffset()
	for offset := int64(0); offset < w.size; {
		n, err := io.ReadFull(r, buffer[:min(w.size-offset, int64(len(buffer)))])
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", err
		}
		w.sum.Hash().Write(buffer[:n]) // hashes do not fail
		if !there && offset >= from {
			request := &contentapi.WriteContentRequest{Action: contentapi.WriteAction_WRITE, Ref: w.ref, Total: w.size, Offset: offset, Data: buffer[:n]}
			if _, err := w.send(request); err != nil {
				return "", err
			}
		}
		offset += int64(n)
	}
	got := w.sum.Digest()
	if w.want != "" && got != w.want {
		return "", fmt.Errorf("it is damaged: its digest is %s; write or copy it again", got)
	}
	if there {
		return got, nil
	}
	_, err = w.send(&contentapi.WriteContentRequest{Action: contentapi.WriteAction_COMMIT, Ref: w.ref, Total: w.size, Offset: w.size, Expected: got.String()})
	if status.Code(err) == codes.AlreadyExists {
		err = nil
	}
	return got, err
}

func (w upload) send(request *contentapi.WriteContentRequest) (*contentapi.WriteContentResponse, error) {
	// The error of a broken stream is returned by Recv.
	if err := w.stream.Send(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return w.stream.Recv()
}

func (s *store) writeDocument(mediaType string, document []byte) (ocispec.Descriptor, error) {
	size := int64(len(document))
	got, err := s.write(bytes.NewReader(document), size, "")
	return ocispec.Descriptor{MediaType: mediaType, Digest: got, Size: size}, err
}

func (s *store) document(of ocispec.Descriptor) ([]byte, error) {
	size, err := s.size(of.Digest)
	if err != nil {
		return nil, err
	}
	if size > maxDocument {
		return nil, fmt.Errorf("%s is larger than %d bytes, which no manifest is; %s", of.Digest, maxDocument, howToWrite)
	}
	stream, err := s.content.Read(s.ctx, &contentapi.ReadContentRequest{Digest: of.Digest.String()})
	if err != nil {
		return nil, plain(err)
	}
	var document []byte
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return document, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", of.Digest, plain(err))
		}
		document = append(document, response.GetData()...)
	}
}

// size also adds an existing blob to the lease.
func (s *store) size(of digest.Digest) (int64, error) {
	if err := of.Validate(); err != nil {
		return 0, fmt.Errorf("%q: %w", of, err)
	}
	response, err := s.content.Info(s.ctx, &contentapi.InfoRequest{Digest: of.String()})
	if status.Code(err) == codes.NotFound {
		return 0, fmt.Errorf("%s is missing in it; %s", of, howToWrite)
	}
	if err != nil {
		return 0, plain(err)
	}
	_, err = s.leases.AddResource(s.ctx, &leasesapi.AddResourceRequest{ID: s.lease, Resource: &leasesapi.Resource{ID: of.String(), Type: "content"}})
	return response.GetInfo().GetSize(), plain(err)
}

func (s *store) refer(from digest.Digest, to map[string]digest.Digest) error {
	labels := map[string]string{}
	for key, referred := range to {
		labels[labelRef+key] = referred.String()
	}
	return s.label(from, labels)
}

// label adds labels to a blob.
func (s *store) label(of digest.Digest, labels map[string]string) error {
	mask := &fieldmaskpb.FieldMask{}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		mask.Paths = append(mask.Paths, "labels."+key)
	}
	_, err := s.content.Update(s.ctx, &contentapi.UpdateRequest{Info: &contentapi.Info{Digest: of.String(), Labels: labels}, UpdateMask: mask})
	return plain(err)
}

// register creates the same image names as a pull through CRI: the ID, the name
// with the digest, and the name with the tag.
func (s *store) register(image Imported, labels map[string]string) error {
	name, err := reference.ParseNormalizedNamed(image.Name)
	if err != nil {
		return err
	}
	document, err := s.document(ocispec.Descriptor{Digest: image.Digest})
	if err != nil {
		return err
	}
	var target struct {
		MediaType string           `json:"mediaType"`
		Manifests []map[string]any `json:"manifests"`
	}
	if err := decode(image.Digest.String(), document, &target); err != nil {
		return err
	}
	if target.MediaType == "" { // optional before version 1.1 of the specification
		target.MediaType = ocispec.MediaTypeImageManifest
		if target.Manifests != nil {
			target.MediaType = ocispec.MediaTypeImageIndex
		}
	}
	all := map[string]string{labelManaged: "managed"}
	maps.Copy(all, labels)
	for _, reference := range []string{image.ID.String(), name.Name() + "@" + image.Digest.String(), image.Name} {
		record := &imagesapi.Image{Name: reference, Labels: all, Target: &types.Descriptor{
			MediaType: target.MediaType, Digest: image.Digest.String(), Size: int64(len(document)),
		}}
		_, err := s.images.Create(s.ctx, &imagesapi.CreateImageRequest{Image: record})
		if status.Code(err) == codes.AlreadyExists {
			_, err = s.images.Update(s.ctx, &imagesapi.UpdateImageRequest{Image: record})
		}
		if err != nil {
			return fmt.Errorf("name it %s: %w", reference, plain(err))
		}
	}
	return nil
}

// awaitCRI waits until CRI knows an image, which it learns by an event.
func (s *store) awaitCRI(image Imported) error {
	ctx, cancel := context.WithTimeout(s.ctx, noticeTimeout)
	defer cancel()
	tick := s.clock.NewTicker(noticePoll)
	defer tick.Stop()
	for {
		response, err := s.cri.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image.Name}})
		if err == nil && response.GetImage().GetId() == image.ID.String() {
			return nil
		}
		if ctx.Err() != nil || status.Code(err) == codes.Unimplemented {
			return fmt.Errorf("%s is in containerd, but its CRI plugin does not know of it: %w", image.Name, errors.Join(plain(err), ctx.Err()))
		}
		select {
		case <-ctx.Done():
		case <-tick.C():
		}
	}
}

// plain returns an error without gRPC's prefix.
func plain(err error) error {
	if s, ok := status.FromError(err); ok && err != nil {
		if s.Code() == codes.Canceled {
			return context.Canceled
		}
		return errors.New(s.Message())
	}
	return err
}
