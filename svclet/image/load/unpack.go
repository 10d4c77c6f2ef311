package load

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	diffapi "github.com/containerd/containerd/api/services/diff/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// labelSnapshot, with the name of a snapshotter, refers from a configuration to the
	// snapshot of all layers. containerd collects snapshots without a reference.
	labelSnapshot = "containerd.io/gc.ref.snapshot."
	// labelChain is the name that a snapshot in the making is to get.
	labelChain = "containerd.io/snapshot.ref"
	// snapshotterRoot is what the directory of a snapshotter begins with.
	snapshotterRoot = "io.containerd.snapshotter.v1."
)

// layer is a layer of an image, and the digest of its uncompressed content.
type layer struct {
	ocispec.Descriptor
	diffID digest.Digest
}

// unpack makes the snapshots of an image, as a pull through CRI does. Without them, each of
// the first containers of the image unpacks all layers, also when several start at once.
func (s *store) unpack(image Imported) error {
	snapshotter, err := s.snapshotter()
	if err != nil || snapshotter == "" {
		return err
	}
	var parent string
	var diffIDs []digest.Digest
	for _, layer := range image.layers {
		diffIDs = append(diffIDs, layer.diffID)
		chain := identity.ChainID(diffIDs).String()
		if err := s.unpackLayer(snapshotter, layer, parent, chain); err != nil {
			return fmt.Errorf("unpack its layer %s: %w", layer.Digest, err)
		}
		parent = chain
	}
	if parent == "" {
		return nil
	}
	return s.label(image.ID, map[string]string{labelSnapshot + snapshotter: parent})
}

// snapshotter returns the name of the snapshotter of CRI's containers, or nothing if CRI
// uses several: then CRI unpacks the image for the one that a container needs.
func (s *store) snapshotter() (string, error) {
	info, err := s.cri.ImageFsInfo(s.ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return "", fmt.Errorf("ask CRI where images are unpacked: %w", plain(err))
	}
	if len(info.GetImageFilesystems()) != 1 {
		return "", nil
	}
	name, ok := strings.CutPrefix(path.Base(info.GetImageFilesystems()[0].GetFsId().GetMountpoint()), snapshotterRoot)
	if !ok {
		return "", nil
	}
	return name, nil
}

// unpackLayer makes the snapshot named chain, of a layer above a parent, unless it exists.
func (s *store) unpackLayer(snapshotter string, of layer, parent, chain string) error {
	// The lease keeps a snapshot that exists, and to which no image refers.
	_, err := s.leases.AddResource(s.ctx, &leasesapi.AddResourceRequest{ID: s.lease, Resource: &leasesapi.Resource{ID: chain, Type: "snapshots/" + snapshotter}})
	if err != nil {
		return plain(err)
	}
	_, err = s.snapshots.Stat(s.ctx, &snapshotsapi.StatSnapshotRequest{Snapshotter: snapshotter, Key: chain})
	if status.Code(err) != codes.NotFound {
		return plain(err)
	}
	key := s.lease + " " + chain
	prepared, err := s.snapshots.Prepare(s.ctx, &snapshotsapi.PrepareSnapshotRequest{
		Snapshotter: snapshotter, Key: key, Parent: parent, Labels: map[string]string{labelChain: chain},
	})
	if status.Code(err) == codes.AlreadyExists {
		return nil // a snapshotter that has layers elsewhere knows it
	}
	if err != nil {
		return plain(err)
	}
	err = s.apply(of, prepared.GetMounts())
	if err == nil {
		_, err = s.snapshots.Commit(s.ctx, &snapshotsapi.CommitSnapshotRequest{Snapshotter: snapshotter, Name: chain, Key: key})
		if err == nil {
			return nil
		}
	}
	_, removeErr := s.snapshots.Remove(context.WithoutCancel(s.ctx), &snapshotsapi.RemoveSnapshotRequest{Snapshotter: snapshotter, Key: key})
	if status.Code(err) == codes.AlreadyExists {
		err = nil // a container or another import has made it meanwhile
	}
	return errors.Join(plain(err), plain(removeErr))
}

// apply unpacks a layer into mounts.
func (s *store) apply(of layer, mounts []*types.Mount) error {
	applied, err := s.diffs.Apply(s.ctx, &diffapi.ApplyRequest{
		Diff: &types.Descriptor{MediaType: of.MediaType, Digest: of.Digest.String(), Size: of.Size}, Mounts: mounts,
	})
	if err != nil {
		return err
	}
	if got := applied.GetApplied().GetDigest(); got != of.diffID.String() {
		return fmt.Errorf("its content is %s, and its configuration says %s; %s", got, of.diffID, howToWrite)
	}
	return nil
}
