package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// attachTimeout is how long a mount waits for a controller to attach the volume.
	attachTimeout = 2 * time.Minute
	// The bounds of the pause between two requests for a VolumeAttachment, which a node
	// may get, and not watch.
	minAttachPoll, maxAttachPoll = 100 * time.Millisecond, 5 * time.Second
)

// awaitAttached waits until a controller has attached a volume, and returns what it has
// published of it. From then on until the last pod has released the volume, the Node's
// status says that it is in use.
func (m *Manager) awaitAttached(ctx context.Context, uid types.UID, r record) (map[string]string, error) {
	name, caller := uniqueName(r), ctx
	m.use(name, uid, true)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := m.o.Clock.AfterFunc(attachTimeout, func() { cancel(errAttachTimeout) })
	defer timer.Stop()
	problem := fmt.Errorf("the Node's status does not say yet that volume %s is in use", name)
	for pause := minAttachPoll; ; pause = min(2*pause, maxAttachPoll) {
		if node := m.o.Node(); slices.Contains(node.Status.VolumesInUse, name) {
			attached := slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == name })
			var metadata map[string]string
			if metadata, problem = m.attachment(ctx, r); problem == nil && (attached || !m.o.ControllerAttaches) {
				return metadata, nil
			}
			if problem == nil {
				problem = fmt.Errorf("the Node's status does not have volume %s among those attached", name)
			}
		}
		select {
		case <-ctx.Done():
			err := fmt.Errorf("timed out waiting for the volume to be attached by the controllers of CSI driver %s: %w", r.Driver, problem)
			if errors.Is(context.Cause(ctx), errAttachTimeout) && m.isExhausted(caller, r) {
				err = &LimitError{err}
			}
			return nil, err
		case <-m.o.Clock.After(pause):
		}
	}
}

var errAttachTimeout = errors.New("the volume was not attached in time")

// LimitError is the failure to attach a volume to a node that has as many volumes of the driver as
// it may have.
type LimitError struct{ Err error }

// Error returns the text of kubelet's event.
func (e *LimitError) Error() string {
	return fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. %v", e.Err)
}

// Unwrap returns the cause.
func (e *LimitError) Unwrap() error { return e.Err }

// isExhausted reports whether a volume was not attached because the node has no room for it, and
// then asks the driver how many volumes the node may have: the scheduler has been told too many
// (VerifyExhaustedResource of kubelet's CSI plugin, KEP-4876). An API server without the feature
// gate MutableCSINodeAllocatableCount stores none of the fields that this needs.
func (m *Manager) isExhausted(ctx context.Context, r record) bool {
	object, err := m.csiDriver(ctx, r.Driver)
	if err != nil || object.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return false
	}
	a := &storagev1.VolumeAttachment{}
	if err := m.o.Client.Get(ctx, client.ObjectKey{Name: attachmentName(r, m.o.NodeName)}, a); err != nil {
		return false
	}
	if e := a.Status.AttachError; e == nil || ptr.Deref(e.ErrorCode, 0) != int32(codes.ResourceExhausted) {
		return false
	}
	d, err := m.drivers.get(r.Driver)
	if err == nil {
		err = m.askAllocatable(ctx, d)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to update how many volumes of a CSI driver the node may have", "driver", r.Driver)
	}
	return true
}

// attachmentName returns the name of the VolumeAttachment of a volume.
func attachmentName(r record, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(r.Handle+r.Driver+node)))
}

// attachment returns the metadata of a volume that is attached, and an error if it is
// not.
func (m *Manager) attachment(ctx context.Context, r record) (map[string]string, error) {
	name := attachmentName(r, m.o.NodeName)
	a := &storagev1.VolumeAttachment{}
	err := m.o.Client.Get(ctx, client.ObjectKey{Name: name}, a)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("VolumeAttachment %s does not exist", name)
	case err != nil:
		return nil, fmt.Errorf("reading VolumeAttachment %s: %w", name, err)
	case a.DeletionTimestamp != nil:
		return nil, fmt.Errorf("VolumeAttachment %s is being deleted", name)
	case a.Status.Attached:
		return a.Status.AttachmentMetadata, nil
	case a.Status.AttachError != nil:
		return nil, fmt.Errorf("VolumeAttachment %s: %s", name, a.Status.AttachError.Message)
	}
	return nil, fmt.Errorf("VolumeAttachment %s is not attached yet", name)
}
