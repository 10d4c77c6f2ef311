package decision

import (
	"context" //nolint:depguard // the library's expressions take one, which is never cancelled here

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
)

// preferredDevices prefers nodes on which requests get what they list first (KEP-4816).
func preferredDevices(_ *Snapshot, r *request, nodes []*node, scores []int64) bool {
	need := r.devices
	if need == nil || need.allocator == nil {
		return false
	}
	var fixed int64
	for _, claim := range need.allocated {
		fixed += preference(claim, claim.Status.Allocation)
	}
	for i, n := range nodes {
		scores[i] = fixed
		decisions, err := need.place(n)
		if err != nil {
			continue // the filter has rejected such a node
		}
		// The decisions about the claims to allocate are the last, in their order.
		decisions = decisions[len(need.rewrite)+len(need.reserve):]
		for j, claim := range need.allocate {
			scores[i] += preference(claim, decisions[j].Allocation)
		}
	}
	scaleToHighest(scores)
	return true
}

// preference returns the sum over the requests of a claim that list alternatives: the more,
// the earlier in its list the allocated one is.
func preference(claim *resourcev1.ResourceClaim, allocation *resourcev1.AllocationResult) int64 {
	allocated := map[string]bool{}
	for i := range allocation.Devices.Results {
		allocated[allocation.Devices.Results[i].Request] = true
	}
	var sum int64
	for _, request := range claim.Spec.Devices.Requests {
		for i, alternative := range request.FirstAvailable {
			if allocated[resourceclaim.CreateSubRequestRef(request.Name, alternative.Name)] {
				sum += int64(resourcev1.FirstAvailableDeviceRequestMaxSize - i)
			}
		}
	}
	return sum
}

// deviceCount is how many devices of a class there are, and how many of them are allocated.
type deviceCount struct{ capacity, allocated int64 }

// deviceCounts are the devices of a class, by where they can be used.
type deviceCounts struct {
	byNode     map[string]deviceCount
	bySelector []selectedDevice
	everywhere deviceCount
}

// selectedDevice is a device for the nodes that a selector matches.
type selectedDevice struct {
	selector *nodeaffinity.NodeSelector
	deviceCount
}

// countOf returns the devices of the class that offers an extended resource of the pod; nil if
// no class does.
func (need *devicesRequest) countOf(resource corev1.ResourceName) *deviceCounts {
	if need == nil || need.extended == nil {
		return nil
	}
	class := need.devices.classes[need.extended.classes[resource]]
	if class == nil {
		return nil
	}
	if need.counts == nil {
		need.counts = map[string]*deviceCounts{}
	}
	if need.counts[class.Name] == nil {
		need.counts[class.Name] = need.devices.count(class)
	}
	return need.counts[class.Name]
}

// count counts the devices of a class. Those to which its expressions cannot be applied are not
// counted.
func (d *devices) count(class *resourcev1.DeviceClass) *deviceCounts {
	counts, taken := &deviceCounts{byNode: map[string]deviceCount{}}, d.taken()
	for _, slice := range d.offered() {
		for i := range slice.Spec.Devices {
			device := &slice.Spec.Devices[i]
			if !d.selects(class, slice.Spec.Driver, device) {
				continue
			}
			found := deviceCount{capacity: 1}
			if structured.IsDeviceAllocated(structured.MakeDeviceID(slice.Spec.Driver, slice.Spec.Pool.Name, device.Name), &taken) {
				found.allocated = 1
			}
			counts.add(slice, device, found)
		}
	}
	return counts
}

// add adds a device where it can be used, as it or its slice says.
func (c *deviceCounts) add(slice *resourcev1.ResourceSlice, device *resourcev1.Device, found deviceCount) {
	name, selector, all := slice.Spec.NodeName, slice.Spec.NodeSelector, slice.Spec.AllNodes
	if each := slice.Spec.PerDeviceNodeSelection; each != nil && *each {
		name, selector, all = device.NodeName, device.NodeSelector, device.AllNodes
	}
	switch {
	case all != nil && *all:
		c.everywhere.add(found)
	case name != nil:
		sum := c.byNode[*name]
		sum.add(found)
		c.byNode[*name] = sum
	case selector != nil:
		if parsed, err := nodeaffinity.NewNodeSelector(selector); err == nil { // the API server has checked it
			c.bySelector = append(c.bySelector, selectedDevice{parsed, found})
		}
	}
}

func (c *deviceCount) add(by deviceCount) {
	c.capacity += by.capacity
	c.allocated += by.allocated
}

// selects reports whether a device is one of a class.
func (d *devices) selects(class *resourcev1.DeviceClass, driver string, device *resourcev1.Device) bool {
	for _, selector := range class.Spec.Selectors {
		if selector.CEL == nil {
			continue
		}
		compiled := d.expressions.GetOrCompile(selector.CEL.Expression)
		if compiled.Error != nil {
			return false
		}
		matches, _, err := compiled.DeviceMatches(context.Background(), cel.Device{
			Driver: driver, AllowMultipleAllocations: device.AllowMultipleAllocations, Attributes: device.Attributes, Capacity: device.Capacity,
		})
		if err != nil || !matches {
			return false
		}
	}
	return true
}

// on returns the usage of the devices for a node by a pod that gets some more. A node without
// such devices has no capacity.
func (c *deviceCounts) on(n *node, added int64) usage {
	if c == nil {
		return usage{added: added}
	}
	sum := c.everywhere
	sum.add(c.byNode[n.name])
	for _, s := range c.bySelector {
		if s.selector.Match(n.object) {
			sum.add(s.deviceCount)
		}
	}
	return usage{sum.allocated, added, sum.capacity}
}
