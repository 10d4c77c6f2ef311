package resourcepoolstatusrequest

import (
	"fmt"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// maxEntries is how many types of partitions, and how many shared capacities, the API allows for
// a pool.
const maxEntries = 32

// pool is a pool of a driver: its slices of the newest generation, and what claims have of it.
type pool struct {
	slices   []*resourcev1.ResourceSlice // at least one
	devices  map[string]*resourcev1.Device
	inUse    map[string]bool // by names of devices
	consumed map[resourcev1.QualifiedName]resource.Quantity
}

func newPool(slice *resourcev1.ResourceSlice) *pool {
	p := &pool{devices: map[string]*resourcev1.Device{}, inUse: map[string]bool{}, consumed: map[resourcev1.QualifiedName]resource.Quantity{}}
	p.add(slice)
	return p
}

func (p *pool) add(slice *resourcev1.ResourceSlice) {
	p.slices = append(p.slices, slice)
	for i := range slice.Spec.Devices {
		p.devices[slice.Spec.Devices[i].Name] = &slice.Spec.Devices[i]
	}
}

func (p *pool) generation() int64 { return p.slices[0].Spec.Pool.Generation }

// complete reports whether all slices are there. The first one says how many these are.
func (p *pool) complete() bool {
	return int64(len(p.slices)) >= p.slices[0].Spec.Pool.ResourceSliceCount
}

// allocate counts an allocation of a device, unless the pool no longer has it.
func (p *pool) allocate(result resourcev1.DeviceRequestAllocationResult) {
	if p.devices[result.Device] == nil {
		return
	}
	p.inUse[result.Device] = true
	for name, amount := range result.ConsumedCapacity {
		sum := p.consumed[name]
		sum.Add(amount)
		p.consumed[name] = sum
	}
}

// status returns the state of a pool. attribute, if it is not nil, is that by which the
// partitions of drivers are grouped that do not declare one.
func (p *pool) status(attribute *string) resourcev1alpha3.PoolStatus {
	first := p.slices[0].Spec
	s := resourcev1alpha3.PoolStatus{Driver: first.Driver, PoolName: first.Pool.Name, Generation: first.Pool.Generation}
	elsewhere := func(slice *resourcev1.ResourceSlice) bool {
		return ptr.Deref(slice.Spec.NodeName, "") != ptr.Deref(first.NodeName, "")
	}
	if first.NodeName != nil && !slices.ContainsFunc(p.slices, elsewhere) {
		s.NodeName = ptr.To(*first.NodeName)
	}
	if !p.complete() {
		s.ValidationError = cut(fmt.Sprintf("PoolIncomplete: pool %s/%s is incomplete: observed %d/%d slices at generation %d",
			first.Driver, first.Pool.Name, len(p.slices), first.Pool.ResourceSliceCount, first.Pool.Generation), maxError)
		return s
	}
	var allocated, unavailable int
	for name, device := range p.devices {
		switch {
		case p.inUse[name]:
			allocated++
		case tainted(device):
			unavailable++
		}
	}
	s.ResourceSliceCount = ptr.To(int32(len(p.slices)))
	s.TotalDevices = ptr.To(int32(len(p.devices)))
	s.AllocatedDevices = ptr.To(int32(allocated))
	s.UnavailableDevices = ptr.To(int32(unavailable))
	s.AvailableDevices = ptr.To(int32(len(p.devices) - allocated - unavailable))

	var problem, another error
	s.PartitionSummary, problem = p.partitions(attribute)
	s.ShareableSummary, another = p.shared()
	if problem == nil {
		problem = another
	}
	if problem != nil {
		s.PartitionSummary = nil
		s.ValidationError = cut(problem.Error(), maxError)
	}
	return s
}

// tainted reports whether no claim gets a device unless it tolerates its taints.
func tainted(device *resourcev1.Device) bool {
	return slices.ContainsFunc(device.Taints, func(t resourcev1.DeviceTaint) bool {
		return t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute
	})
}

// shared returns how much is left of the capacities of devices that several claims may share. It
// is nil for a pool without such devices.
func (p *pool) shared() (*resourcev1alpha3.ShareableSummaryStatus, error) {
	var free, partly int32
	total := map[resourcev1.QualifiedName]resource.Quantity{}
	for name, device := range p.devices {
		if !ptr.Deref(device.AllowMultipleAllocations, false) {
			continue
		}
		if p.inUse[name] {
			partly++
		} else {
			free++
		}
		for name, capacity := range device.Capacity {
			sum := total[name]
			sum.Add(capacity.Value)
			total[name] = sum
		}
	}
	if free+partly == 0 {
		return nil, nil
	}
	if len(total) > maxEntries {
		return nil, fmt.Errorf("ShareableSummaryOverCap: %s has %d shareable capacity keys, exceeding the maximum of %d", p, len(total), maxEntries)
	}
	s := &resourcev1alpha3.ShareableSummaryStatus{FullyAvailableDevices: &free, PartiallyAvailableDevices: &partly}
	for _, name := range slices.Sorted(maps.Keys(total)) {
		all, consumed := total[name], p.consumed[name]
		left := all.DeepCopy()
		left.Sub(consumed)
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, all.Format)
		}
		s.Capacity = append(s.Capacity, resourcev1alpha3.ShareableCapacityStatus{Name: string(name), Total: &all, Consumed: &consumed, Available: &left})
	}
	return s, nil
}

// String names the pool in messages.
func (p *pool) String() string {
	return fmt.Sprintf("pool %s/%s", p.slices[0].Spec.Driver, p.slices[0].Spec.Pool.Name)
}
