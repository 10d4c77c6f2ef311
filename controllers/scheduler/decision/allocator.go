package decision

import (
	"context" //nolint:depguard // the library's allocator takes one, which limits its time
	"errors"
	"fmt"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"svc.dev/svc/controllers/devicetaints"
)

// allocatorFeatures returns the features of the allocator. Only if pods wait for the binding
// conditions of devices, it allocates those that have some.
func allocatorFeatures(p *Profile) structured.Features {
	return structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true, ConsumableCapacity: true,
		DeviceBindingAndStatus: p.DeviceBindTimeout > 0, FractionalCapacityRange: p.FractionalCapacity,
	}
}

// expressionsKept is how many compiled expressions are kept.
const expressionsKept = 100

// allocator returns an allocator of the devices that are free.
func (d *devices) allocator(profile *Profile) (structured.Allocator, error) {
	features := allocatorFeatures(profile)
	if d.expressions == nil {
		d.expressions = cel.NewCache(expressionsKept, cel.Features{EnableConsumableCapacity: features.ConsumableCapacity})
	}
	return structured.NewAllocator(d.during, features, d.taken(), classLister(d.classes), d.offered(), d.expressions)
}

// During lets the end of ctx end the searches for devices.
func (s *Snapshot) During(ctx context.Context) { s.devices.during = ctx }

// search returns devices of a node for claims, one result for each of them if there are enough. A
// search that takes too long, or is ended, is recorded: there can be no decision.
func (need *devicesRequest) search(n *node, claims []*resourcev1.ResourceClaim) ([]resourcev1.AllocationResult, error) {
	ctx := need.devices.during
	if need.limit > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, need.limit)
		defer end()
	}
	results, err := need.allocator.Allocate(ctx, n.object, claims)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = fmt.Errorf("node %s: timed out trying to allocate devices", n.name)
		need.aborted = err
	}
	return results, err
}

// taken returns the devices that claims have.
func (d *devices) taken() structured.AllocatedState {
	taken := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	for name, claim := range d.claims {
		if d.assumed[name] == nil {
			take(&taken, claim.Status.Allocation)
		}
	}
	for _, a := range d.assumed {
		take(&taken, a.claim.Status.Allocation)
	}
	return taken
}

// offered returns all slices, with the taints of the rules.
func (d *devices) offered() []*resourcev1.ResourceSlice {
	offered := make([]*resourcev1.ResourceSlice, 0, len(d.slices))
	rules := slices.Collect(maps.Values(d.rules))
	for _, name := range sets.List(sets.KeySet(d.slices)) {
		if d.tainted[name] == nil {
			d.tainted[name] = devicetaints.Apply(d.slices[name], rules)
		}
		offered = append(offered, d.tainted[name])
	}
	return offered
}

// take adds the devices of an allocation to those that are taken. Administrative access
// takes none.
func take(taken *structured.AllocatedState, allocation *resourcev1.AllocationResult) {
	if allocation == nil {
		return
	}
	for _, r := range allocation.Devices.Results {
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		switch {
		case r.AdminAccess != nil && *r.AdminAccess:
		case r.ShareID != nil:
			taken.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
			if r.ConsumedCapacity != nil {
				taken.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
			}
		default:
			taken.AllocatedDevices.Insert(id)
		}
	}
}

// classLister implements structured.DeviceClassLister.
type classLister map[string]*resourcev1.DeviceClass

// List implements structured.DeviceClassLister.
func (l classLister) List() ([]*resourcev1.DeviceClass, error) {
	all := make([]*resourcev1.DeviceClass, 0, len(l))
	for _, name := range sets.List(sets.KeySet(l)) {
		all = append(all, l[name])
	}
	return all, nil
}

// Get implements structured.DeviceClassLister.
func (l classLister) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := l[name]; class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("deviceclasses"), name)
}
