package csi

import (
	"context"
	"fmt"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// expand makes the driver expand a volume that its controller has expanded, and writes
// the new capacity into the claim.
func (p *publication) expand(ctx context.Context, path string) error {
	if !p.driver.can(spec.NodeServiceCapability_RPC_EXPAND_VOLUME) {
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
		VolumeCapability: p.capability(p.driver, p.options, p.group),
	}
	if p.record.Staged {
		request.StagingTargetPath = p.layout.staging(p.record.Driver, p.record.Handle)
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := p.driver.NodeExpandVolume(call, request); err != nil {
		return fmt.Errorf("MountVolume.NodeExpandVolume failed for volume %q: NodeExpandVolume of CSI driver %s: %w", p.PV.Name, p.record.Driver, err)
	}
	resized := p.Claim.DeepCopy()
	markExpanded(resized, p.PV)
	if err := p.o.Client.Status().Patch(ctx, resized, client.MergeFrom(p.Claim)); err != nil {
		return fmt.Errorf("writing the capacity of claim %s: %w", p.Claim.Name, err)
	}
	return nil
}

// isExpanded reports whether a volume that is not read-only is larger than its claim says.
func (p *publication) isExpanded() bool {
	if p.Claim == nil || p.readOnly() {
		return false
	}
	has := p.Claim.Status.Capacity.Storage()
	return !has.IsZero() && p.PV.Spec.Capacity.Storage().Cmp(*has) > 0
}

// markExpanded sets the status of a claim whose volume has been expanded on the node.
func markExpanded(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	claim.Status.Capacity[corev1.ResourceStorage] = *pv.Spec.Capacity.Storage()
	claim.Status.Conditions = slices.DeleteFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimResizing || c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
	})
	delete(claim.Status.AllocatedResourceStatuses, corev1.ResourceStorage)
}
