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
		return err
	}
	request := &spec.NodeExpandVolumeRequest{
		VolumeId: p.record.Handle, VolumePath: path, Secrets: secrets,
		CapacityRange:    &spec.CapacityRange{RequiredBytes: p.PV.Spec.Capacity.Storage().Value()},
		VolumeCapability: p.capability(p.driver, p.options, nil),
	}
	if p.record.Staged {
		request.StagingTargetPath = p.layout.staging(p.record.Driver, p.record.Handle)
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := p.driver.NodeExpandVolume(call, request); err != nil {
		return p.failExpansion(ctx, fmt.Errorf("MountVolume.NodeExpandVolume failed for volume %q: NodeExpandVolume of CSI driver %s: %w", p.PV.Name, p.record.Driver, err))
	}
	if p.PV.Spec.Capacity.Storage().Cmp(*p.Claim.Status.Capacity.Storage()) > 0 { // else another node has expanded it, too
		resized := p.Claim.DeepCopy()
		markExpanded(resized, p.PV)
		if err := p.o.Client.Status().Patch(ctx, resized, client.StrategicMergeFrom(p.Claim)); err != nil {
			return fmt.Errorf("writing the capacity of claim %s: %w", p.Claim.Name, err)
		}
	}
	p.noteSize()
	return nil
}

// failExpansion handles the failure of an expansion as kubelet does (its NodeExpander): a volume
// that the driver does not expand while it is in use is mounted as it is; an expansion that can
// never succeed is marked in the claim, so that it is not tried again and its size can be
// changed. That is for resizers which record their state in the claim (KEP-1790): others would
// never remove the mark.
func (p *publication) failExpansion(ctx context.Context, failure error) error {
	switch status.Code(failure) {
	case codes.FailedPrecondition:
		p.mu.Lock()
		p.deferred[p.dir] = p.PV.Spec.Capacity.Storage().Value()
		p.mu.Unlock()
		klog.FromContext(ctx).Error(failure, "Failed to expand a volume in use, will retry for the next pod", "volume", p.PV.Name, "pod", klog.KObj(p.Pod))
		return nil
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		if !recordsResize(p.Claim) {
			return failure
		}
		infeasible := p.Claim.DeepCopy()
		markInfeasible(infeasible, failure, metav1.NewTime(p.o.Clock.Now()))
		if err := p.o.Client.Status().Patch(ctx, infeasible, client.StrategicMergeFrom(p.Claim)); err != nil {
			return errors.Join(failure, fmt.Errorf("writing that the expansion of claim %s is infeasible: %w", p.Claim.Name, err))
		}
	}
	return failure
}

// recordsResize reports whether the resizer of a claim's volume records its state in the claim.
func recordsResize(claim *corev1.PersistentVolumeClaim) bool {
	_, recorded := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	return recorded || claim.Status.AllocatedResources != nil
}

// isExpanded reports whether a volume that is not read-only is larger than it was when it was
// first mounted on this node, or expanded on it, and the expansion has not failed for good, or
// for the pod. Kubelet compares the same: its first size is the claim's. The claim does not say
// later what is to be done, since it has the capacity as soon as one of several nodes has
// expanded the volume.
func (p *publication) isExpanded() bool {
	if p.Claim == nil || p.readOnly() || p.Claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizeInfeasible {
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
	return size > p.sizes[key] && p.deferred[p.dir] != size
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

// markInfeasible sets the status of a claim whose volume cannot be expanded on the node.
func markInfeasible(claim *corev1.PersistentVolumeClaim, failure error, now metav1.Time) {
	if claim.Status.AllocatedResourceStatuses == nil {
		claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizeInfeasible
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
