package volumeexpansion

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventrecord "k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options are what a [Manager] works with. Fields are required unless their comment says
// otherwise.
type Options struct {
	// NodeName is the node's name, for events.
	NodeName string
	// Client writes the status of claims. It may be nil if there are none.
	Client client.Client
	// Events records events about pods and claims.
	Events eventrecord.EventRecorder
	Clock  clock.PassiveClock
}

// Manager expands the volumes of a node. Its methods are safe for concurrent use, but those with
// the same [Volume.Key] must not overlap.
type Manager struct {
	o Options

	mu sync.Mutex
	// sizes are the sizes, in bytes, to which volumes are expanded on this node, by their keys:
	// first those of their claims.
	sizes map[string]int64
	// deferred are the sizes, in bytes, to which a volume was not expanded for a pod because it was
	// in use.
	deferred map[use]int64
	// failed are the keys of the volumes whose last expansion has failed and was not going on.
	failed map[string]bool
}

// use is the use of a volume by a pod.
type use struct {
	pod types.UID
	key string
}

// New returns a manager.
func New(o Options) *Manager {
	return &Manager{o: o, sizes: map[string]int64{}, deferred: map[use]int64{}, failed: map[string]bool{}}
}

// Volume is a volume that a pod uses.
type Volume struct {
	// Key identifies the volume on this node.
	Key string
	Pod *corev1.Pod
	PV  *corev1.PersistentVolume
	// Claim is nil for a volume without one, which is never expanded.
	Claim *corev1.PersistentVolumeClaim
	// ReadOnly volumes are not expanded.
	ReadOnly bool
}

// size returns the volume's capacity in bytes.
func (v *Volume) size() int64 { return v.PV.Spec.Capacity.Storage().Value() }

// isWritten reports whether the claim has the capacity of the volume.
func (v *Volume) isWritten() bool {
	return v.Claim.Status.Capacity.Storage().Cmp(*v.PV.Spec.Capacity.Storage()) >= 0 && resizeStatus(v.Claim) == ""
}

// Error is the failure to expand a volume on the node.
type Error struct {
	// Volume is the name of the PersistentVolume.
	Volume string
	Err    error
}

// Error returns the text of kubelet's event.
func (e *Error) Error() string {
	return fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q: %v", e.Volume, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Due reports whether a volume that is not read-only is to be expanded on this node: it is
// larger than it was when it was first mounted on this node, or expanded on it, and the expansion
// has not failed for good, or for the pod. Kubelet compares the same: its first size is the
// claim's. While its resizer works, it waits. Once the claim has the capacity, another node has
// expanded the volume, if several write to it, or there is nothing for nodes to do (runPreCheck of
// kubelet's NodeExpander).
func (m *Manager) Due(v *Volume) bool {
	if v.Claim == nil || v.ReadOnly {
		return false
	}
	switch resizeStatus(v.Claim) {
	case corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible:
		return false
	}
	has := v.Claim.Status.Capacity.Storage()
	if has.IsZero() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.sizes[v.Key]; !known {
		m.sizes[v.Key] = has.Value()
	}
	if v.isWritten() && (!slices.Contains(v.Claim.Spec.AccessModes, corev1.ReadWriteMany) || metav1.HasAnnotation(v.Claim.ObjectMeta, notRequired)) {
		return false
	}
	return v.size() > m.sizes[v.Key] && m.deferred[use{v.Pod.UID, v.Key}] != v.size()
}

// Expand calls expand for a volume that is [Manager.Due], and writes the new capacity into its
// claim. The code of a gRPC status in expand's error reports whether the expansion may go on.
// An error is an [*Error].
func (m *Manager) Expand(ctx context.Context, v *Volume, expand func() error) error {
	if resizeStatus(v.Claim) == corev1.PersistentVolumeClaimNodeResizePending {
		if err := m.patch(ctx, v, markInProgress); err != nil {
			return &Error{v.PV.Name, fmt.Errorf("writing that the expansion of claim %s is in progress: %w", v.Claim.Name, err)}
		}
	}
	if err := expand(); err != nil {
		return m.fail(ctx, v, &Error{v.PV.Name, err})
	}
	message := fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", v.PV.Name, m.o.NodeName)
	for _, about := range []client.Object{v.Pod, v.Claim} {
		m.o.Events.Event(about, corev1.EventTypeNormal, "FileSystemResizeSuccessful", message)
	}
	if !v.isWritten() {
		if err := m.patch(ctx, v, func(claim *corev1.PersistentVolumeClaim) { markExpanded(claim, v.PV) }); err != nil {
			return &Error{v.PV.Name, fmt.Errorf("writing the capacity of claim %s: %w", v.Claim.Name, err)}
		}
	}
	m.Skip(v)
	return nil
}

// Skip records that a volume needs no expansion on this node.
func (m *Manager) Skip(v *Volume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sizes[v.Key] = v.size()
	delete(m.failed, v.Key)
}

// patch writes the status of the claim after change has changed it, unless the claim has been
// changed since it was read: its resizer writes the same fields.
func (m *Manager) patch(ctx context.Context, v *Volume, change func(*corev1.PersistentVolumeClaim)) error {
	changed := v.Claim.DeepCopy()
	change(changed)
	if err := m.o.Client.Status().Patch(ctx, changed, client.StrategicMergeFrom(v.Claim, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	v.Claim = changed
	return nil
}

// fail handles the failure of an expansion as kubelet does (its NodeExpander): a volume
// that is not expanded while it is in use is mounted as it is; another failure is a
// condition of the claim, unless the expansion may go on; one that can never succeed is marked, so
// that it is not tried again and its size can be changed, and so is one that has failed before if
// the claim requests another size by now. That is for resizers which record their
// state in the claim (KEP-1790): others would never remove the mark.
func (m *Manager) fail(ctx context.Context, v *Volume, failure *Error) error {
	var state corev1.ClaimResourceStatus
	switch status.Code(failure.Err) {
	case codes.FailedPrecondition:
		m.mu.Lock()
		m.deferred[use{v.Pod.UID, v.Key}] = v.size()
		m.mu.Unlock()
		klog.FromContext(ctx).Error(failure, "Failed to expand a volume in use, will retry for the next pod", "volume", v.PV.Name, "pod", klog.KObj(v.Pod))
		return nil
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		state = corev1.PersistentVolumeClaimNodeResizeInfeasible
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return failure
	}
	if m.hasFailed(v) && v.Claim.Spec.Resources.Requests.Storage().Cmp(*v.PV.Spec.Capacity.Storage()) != 0 {
		state = corev1.PersistentVolumeClaimNodeResizeInfeasible
	}
	if !recordsResize(v.Claim) {
		return failure
	}
	if err := m.patch(ctx, v, func(claim *corev1.PersistentVolumeClaim) {
		markFailed(claim, state, failure, metav1.NewTime(m.o.Clock.Now()))
	}); err != nil {
		return errors.Join(failure, fmt.Errorf("writing that the expansion of claim %s has failed: %w", v.Claim.Name, err))
	}
	return failure
}

// hasFailed records that the expansion of a volume has failed, and reports whether the last one
// has failed, too.
func (m *Manager) hasFailed(v *Volume) (before bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.failed[v.Key]
	m.failed[v.Key] = true
	return before
}

// Forget forgets a volume that no pod of the node uses any more.
func (m *Manager) Forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sizes, key)
	delete(m.failed, key)
}

// ForgetPod forgets the expansions that were deferred because a pod uses the volume.
func (m *Manager) ForgetPod(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.deferred, func(u use, _ int64) bool { return u.pod == uid })
}
