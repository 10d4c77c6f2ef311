package resourcepoolstatusrequest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// counter is a counter of a counter set of a pool.
type counter struct{ set, name string }

// amounts are amounts of counters.
type amounts map[counter]resource.Quantity

// kind is a type of partition: a value of an attribute of devices.
type kind struct{ attribute, value string }

// group are the devices of a pool that are partitions of one type.
type group struct {
	cost        amounts // of each device
	total, free int32
}

// partitions returns, for each type of partition, how many devices the pool has, and how many
// more could be allocated, each type by itself. It returns nil for a pool whose devices are not
// partitions, or whose slices declare no attribute, if there is none in the request either.
func (p *pool) partitions(attribute *string) ([]resourcev1alpha3.PartitionTypeStatus, error) {
	left, declared := amounts{}, false
	for _, slice := range p.slices {
		declared = declared || slice.Spec.PartitionTypeAttribute != nil && len(slice.Spec.Devices) > 0
		for _, set := range slice.Spec.SharedCounters {
			for name, c := range set.Counters {
				left[counter{set.Name, name}] = c.Value.DeepCopy()
			}
		}
	}
	if len(left) == 0 {
		if declared {
			return nil, fmt.Errorf("PartitionTypeMissing: %s declares partitionTypeAttribute but publishes no sharedCounters", p)
		}
		return nil, nil
	}
	groups := map[kind]*group{}
	for _, slice := range p.slices {
		by := (*string)(slice.Spec.PartitionTypeAttribute)
		if !declared {
			by = attribute
		}
		for i := range slice.Spec.Devices {
			device := &slice.Spec.Devices[i]
			if p.inUse[device.Name] {
				left.take(costOf(device))
			}
			if by == nil || len(device.ConsumesCounters) == 0 {
				continue
			}
			if err := p.group(device, *by, groups); err != nil {
				return nil, err
			}
		}
	}
	if len(groups) > maxEntries {
		return nil, fmt.Errorf("PartitionSummaryOverCap: %s has %d partition types, exceeding the maximum of %d", p, len(groups), maxEntries)
	}
	var summary []resourcev1alpha3.PartitionTypeStatus
	for _, k := range slices.SortedFunc(maps.Keys(groups), func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.attribute, b.attribute), cmp.Compare(a.value, b.value))
	}) {
		g := groups[k]
		allocatable := left.fit(g.cost, g.free)
		summary = append(summary, resourcev1alpha3.PartitionTypeStatus{Attribute: k.attribute, Type: k.value, Total: &g.total, Allocatable: &allocatable})
	}
	return summary, nil
}

// group adds a device to the group of its type, by an attribute.
func (p *pool) group(device *resourcev1.Device, attribute string, groups map[kind]*group) error {
	value := typeOf(device, attribute, p.slices[0].Spec.Driver)
	if value == "" {
		return fmt.Errorf("PartitionTypeMissing: device %q in %s does not carry partition type attribute %q", device.Name, p, attribute)
	}
	k, cost := kind{attribute, value}, costOf(device)
	g := groups[k]
	if g == nil {
		g = &group{cost: cost}
		groups[k] = g
	}
	if !maps.EqualFunc(g.cost, cost, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }) {
		return fmt.Errorf("PartitionCostMismatch: devices of partition type %q in %s consume different counters", value, p)
	}
	g.total++
	if !p.inUse[device.Name] {
		g.free++
	}
	return nil
}

// typeOf returns the text of an attribute of a device, or "". The driver may leave out its own
// domain in the name.
func typeOf(device *resourcev1.Device, attribute, driver string) string {
	a, ok := device.Attributes[resourcev1.QualifiedName(attribute)]
	if own, cut := strings.CutPrefix(attribute, driver+"/"); !ok && cut {
		a = device.Attributes[resourcev1.QualifiedName(own)]
	}
	return ptr.Deref(a.StringValue, "")
}

// costOf returns what a device consumes of the counters of its pool.
func costOf(device *resourcev1.Device) amounts {
	cost := amounts{}
	for _, consumption := range device.ConsumesCounters {
		for name, c := range consumption.Counters {
			cost[counter{consumption.CounterSet, name}] = c.Value
		}
	}
	return cost
}

// take subtracts a cost.
func (a amounts) take(cost amounts) {
	for c, amount := range cost {
		if left, ok := a[c]; ok {
			left.Sub(amount)
			a[c] = left
		}
	}
}

// fit returns how many times a cost can be subtracted, at most so many.
func (a amounts) fit(cost amounts, most int32) int32 {
	for c, amount := range cost {
		have, ok := a[c]
		if !ok {
			return 0
		}
		left, n := have.DeepCopy(), int32(0)
		for n < most && left.Cmp(amount) >= 0 {
			left.Sub(amount)
			n++
		}
		most = n
	}
	return most
}
