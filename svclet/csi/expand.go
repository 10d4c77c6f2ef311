package csi

import (
	"context"
	"fmt"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"svc.dev/svc/svclet/volumeexpansion"
)

// growing returns the volume for the manager of expansions.
func (p *publication) growing() *volumeexpansion.Volume {
	return &volumeexpansion.Volume{Key: p.record.key(), Pod: p.Pod, PV: p.PV, Claim: p.Claim, ReadOnly: p.readOnly()}
}

// expand makes the driver expand a volume that its controller has expanded.
func (p *publication) expand(ctx context.Context, v *volumeexpansion.Volume, path string) error {
	if !p.driver.can(spec.NodeServiceCapability_RPC_EXPAND_VOLUME) {
		p.o.Expansion.Skip(v)
		return nil // The controller has written the capacity, or will.
	}
	defer p.lock()()
	secrets, err := p.secret(ctx, p.PV.Spec.CSI.NodeExpandSecretRef)
	if err != nil {
		return &volumeexpansion.Error{Volume: p.PV.Name, Err: err}
	}
	return p.o.Expansion.Expand(ctx, v, func() error {
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
			return fmt.Errorf("NodeExpandVolume of CSI driver %s: %w", p.record.Driver, err)
		}
		return nil
	})
}
