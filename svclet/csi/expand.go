package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ExpansionError is the failure to expand a volume on the node.
type ExpansionError struct {
	Volume string
	Err    error
}

// Error returns the text of kubelet's event.
func (e *ExpansionError) Error() string {
	return fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q: %v", e.Volume, e.Err)
}

// Unwrap returns the cause.
func (e *ExpansionError) Unwrap() error { return e.Err }

// expand makes the driver expand a volume that its controller has expanded, and writes
// the new capacity into the claim.
func (p *publication) expand(ctx context.Context, path string) error {
	if !p.driver.can(spec.NodeServiceCapability_RPC_EXPAND_VOLUME) {
		p.noteSize()
		return nil // The controller has written the capacity, or will.
	}
	defer p.lock()()
	secrets, err := p.secret(ctx, p.PV.Spec.CSI.NodeExpandSecretRef)
	if err != nil {
		return &ExpansionError{p.PV.Name, err}
	}
	request := &spec.NodeExpandVolumeRequest{
		VolumeId: p.record.Handle, VolumePath: path, Secrets: secrets,
		CapacityRange:    &spec.CapacityRange{RequiredBytes: p.PV.Spec.Capacity.Storage().Value()},
		VolumeCapability: p.capability(p.driver, p.options, nil),
	}
	if p.record.Staged {
		request.StagingTargetPath = p.layout.staging(p.record.Driver, p.record.Handle)
	}
	if resizeStatus(p.Claim) == corev1.PersistentVolumeClaimNodeResizePending {
		if err := p.patchClaim(ctx, markInProgress); err != nil {
			return &ExpansionError{p.PV.Name, fmt.Errorf("writing that the expansion of claim %s is in progress: %w", p.Claim.Name, err)}
		}
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := p.driver.NodeExpandVolume(call, request); err != nil {
		return p.failExpansion(ctx, &ExpansionError{p.PV.Name, fmt.Errorf("NodeExpandVolume of CSI driver %s: %w", p.record.Driver, err)})
	}
	message := fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", p.PV.Name, p.o.NodeName)
	for _, about := range []client.Object{p.Pod, p.Claim} {
		p.o.Events.Event(about, corev1.EventTypeNormal, "FileSystemResizeSuccessful", message)
	}
	if !p.isWritten() {
		if err := p.patchClaim(ctx, func(claim *corev1.PersistentVolumeClaim) { markExpanded(claim, p.PV) }); err != nil {
			return &ExpansionError{p.PV.Name, fmt.Errorf("writing the capacity of claim %s: %w", p.Claim.Name, err)}
		}
	}
	p.noteSize()
	return nil
}

// patchClaim writes the status of the claim after change has changed it, unless the claim has been
// changed since it was read: its resizer writes the same fields.
func (p *publication) patchClaim(ctx context.Context, change func(*corev1.PersistentVolumeClaim)) error {
	changed := p.Claim.DeepCopy()
	change(changed)
	if err := p.o.Client.Status().Patch(ctx, changed, client.StrategicMergeFrom(p.Claim, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	p.Claim = changed
	return nil
}

// failExpansion handles the failure of an expansion as kubelet does (its NodeExpander): a volume
// that the driver does not expand while it is in use is mounted as it is; another failure is a
// condition of the claim, unless the expansion may go on; one that can never succeed is marked, so
// that it is not tried again and its size can be changed. That is for resizers which record their
// state in the claim (KEP-1790): others would never remove the mark.
func (p *publication) failExpansion(ctx context.Context, failure *ExpansionError) error {
	var state corev1.ClaimResourceStatus
	switch status.Code(failure.Err) {
	case codes.FailedPrecondition:
		p.mu.Lock()
		p.deferred[p.dir] = p.PV.Spec.Capacity.Storage().Value()
		p.mu.Unlock()
		klog.FromContext(ctx).Error(failure, "Failed to expand a volume in use, will retry for the next pod", "volume", p.PV.Name, "pod", klog.KObj(p.Pod))
		return nil
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		state = corev1.PersistentVolumeClaimNodeResizeInfeasible
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return failure
	}
	if !recordsResize(p.Claim) {
		return failure
	}
	if err := p.patchClaim(ctx, func(claim *corev1.PersistentVolumeClaim) {
		markFailed(claim, state, failure, metav1.NewTime(p.o.Clock.Now()))
	}); err != nil {
		return errors.Join(failure, fmt.Errorf("writing that the expansion of claim %s has failed: %w", p.Claim.Name, err))
	}
	return failure
}

// resizeStatus returns the state of the expansion of a claim's volume, empty if there is none.
func resizeStatus(claim *corev1.PersistentVolumeClaim) corev1.ClaimResourceStatus {
	return claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
}

// recordsResize reports whether the resizer of a claim's volume records its state in the claim.
func recordsResize(claim *corev1.PersistentVolumeClaim) bool {
	return resizeStatus(claim) != "" || claim.Status.AllocatedResources != nil
}

// notRequired is the annotation of a claim whose volume its controller has expanded on its own.
const notRequired = "volume.kubernetes.io/node-expansion-not-required"

// isExpanded reports whether a volume that is not read-only is to be expanded on this node: it is
// larger than it was when it was first mounted on this node, or expanded on it, and the expansion
// has not failed for good, or for the pod. Kubelet compares the same: its first size is the
// claim's. While its resizer works, it waits. Once the claim has the capacity, another node has
// expanded the volume, if several write to it, or there is nothing for nodes to do (runPreCheck of
// kubelet's NodeExpander).
func (p *publication) isExpanded() bool {
	if p.Claim == nil || p.readOnly() {
		return false
	}
	switch resizeStatus(p.Claim) {
	case corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible:
		return false
	}
	size, has := p.PV.Spec.Capacity.Storage().Value(), p.Claim.Status.Capacity.Storage()
	if has.IsZero() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := p.record.key()
	if _, known := p.sizes[key]; !known {
		p.sizes[key] = has.Value()
	}
	if p.isWritten() && (!slices.Contains(p.Claim.Spec.AccessModes, corev1.ReadWriteMany) || metav1.HasAnnotation(p.Claim.ObjectMeta, notRequired)) {
		return false
	}
	return size > p.sizes[key] && p.deferred[p.dir] != size
}

// isWritten reports whether the claim has the capacity of the volume.
func (p *publication) isWritten() bool {
	return p.Claim.Status.Capacity.Storage().Cmp(*p.PV.Spec.Capacity.Storage()) >= 0 && resizeStatus(p.Claim) == ""
}

// noteSize records that the volume has been expanded on this node.
func (p *publication) noteSize() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sizes[p.record.key()] = p.PV.Spec.Capacity.Storage().Value()
}

// forgetSize forgets the size of a volume that no pod of the node uses any more.
func (m *Manager) forgetSize(r record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sizes, r.key())
}

// forgetDeferred forgets the expansions that a pod has deferred.
func (m *Manager) forgetDeferred(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.deferred, func(dir string, _ int64) bool { return uidOf(dir) == uid })
}

// markInProgress sets the status of a claim whose volume the node is expanding.
func markInProgress(claim *corev1.PersistentVolumeClaim) {
	claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizeInProgress
}

// markFailed sets the status of a claim whose volume has not been expanded on the node, and the
// state of the expansion, unless that is empty.
func markFailed(claim *corev1.PersistentVolumeClaim, state corev1.ClaimResourceStatus, failure error, now metav1.Time) {
	if state != "" {
		if claim.Status.AllocatedResourceStatuses == nil {
			claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
		}
		claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = state
	}
	claim.Status.Conditions = slices.DeleteFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimNodeResizeError
	})
	claim.Status.Conditions = append(claim.Status.Conditions, corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, LastTransitionTime: now,
		Message: "failed to expand pvc with " + failure.Error(),
	})
}

// resizeConditions are the conditions of a claim whose volume is being expanded.
var resizeConditions = []corev1.PersistentVolumeClaimConditionType{
	corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
	corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
}

// markExpanded sets the status of a claim whose volume has been expanded on the node.
func markExpanded(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	claim.Status.Capacity[corev1.ResourceStorage] = *pv.Spec.Capacity.Storage()
	claim.Status.Conditions = slices.DeleteFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return slices.Contains(resizeConditions, c.Type)
	})
	delete(claim.Status.AllocatedResourceStatuses, corev1.ResourceStorage)
}
