package decision

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// parseDeviceClass reads: name [model=value], which selects devices by an expression,
// [offers=resource] [created=second].
func parseDeviceClass(line string) *resourcev1.DeviceClass {
	name, words := fields(line)
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, word := range words {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "model":
			class.Spec.Selectors = append(class.Spec.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{
				Expression: fmt.Sprintf(`device.attributes["d.example.com"].model == %q`, value),
			}})
		case "offers":
			class.Spec.ExtendedResourceName = &value
		case "created":
			class.CreationTimestamp = metav1.Unix(int64(must(strconv.Atoi(value))), 0)
		default:
			panic("unknown word " + word)
		}
	}
	return class
}

// parseDevices reads the devices of a node, of the nodes of a zone, or of all: node, in:zone or
// all, and device=model[:condition!condition]... with a binding condition and a binding failure
// condition.
func parseDevices(line string) *resourcev1.ResourceSlice {
	node, words := fields(line)
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice-" + node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d.example.com", Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
	}}
	switch zone, ok := strings.CutPrefix(node, "in:"); {
	case ok:
		slice.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}},
		}}}}
	case node == "all":
		slice.Spec.AllNodes = ptr.To(true)
	default:
		slice.Spec.NodeName = &node
	}
	for _, word := range words {
		name, model, _ := strings.Cut(word, "=")
		model, conditions, binds := strings.Cut(model, ":")
		device := resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}}
		if binds {
			attached, failed, _ := strings.Cut(conditions, "!")
			device.BindsToNode, device.BindingConditions, device.BindingFailureConditions = &binds, []string{attached}, []string{failed}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	return slice
}

// parseTaintRule reads: name effect [device].
func parseTaintRule(line string) *resourcev1.DeviceTaintRule {
	name, words := fields(line)
	rule := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
	rule.Spec.Taint = resourcev1.DeviceTaint{Key: name, Effect: resourcev1.DeviceTaintEffect(words[0])}
	rule.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
	if len(words) > 1 {
		rule.Spec.DeviceSelector.Device = &words[1]
	}
	return rule
}

// parseResourceClaim reads: name [ns=namespace] class=name (or first=name|name, alternatives) [count=1] [request=name] [tolerates=taint] [owner=pod] [extended=pod] [device=node/device[:condition!condition]]
// (it is allocated) [has=condition] (its driver has set it) [for=pod] (it is reserved) [version=n] [deleting].
func parseResourceClaim(line string) *resourcev1.ResourceClaim {
	name, words := fields(line)
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), ResourceVersion: "1"}}
	request := &resourcev1.ExactDeviceRequest{AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: request}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "ns":
			claim.Namespace = value
		case "class":
			request.DeviceClassName = value
		case "first":
			claim.Spec.Devices.Requests[0] = resourcev1.DeviceRequest{Name: "r"}
			for _, class := range strings.Split(value, "|") {
				claim.Spec.Devices.Requests[0].FirstAvailable = append(claim.Spec.Devices.Requests[0].FirstAvailable, resourcev1.DeviceSubRequest{
					Name: class, DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
				})
			}
		case "count":
			request.Count = int64(must(strconv.Atoi(value)))
		case "request":
			claim.Spec.Devices.Requests[0].Name = value
		case "tolerates":
			request.Tolerations = append(request.Tolerations, resourcev1.DeviceToleration{Key: value, Operator: resourcev1.DeviceTolerationOpExists})
		case "owner", "extended":
			if key == "extended" {
				claim.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
			}
			claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: value, UID: types.UID("default/" + value), Controller: ptr.To(true)}}
		case "device":
			node, device, _ := strings.Cut(value, "/")
			device, conditions, _ := strings.Cut(device, ":")
			attached, failed, binds := strings.Cut(conditions, "!")
			claim.Status.Allocation = &resourcev1.AllocationResult{
				Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: claim.Spec.Devices.Requests[0].Name, Driver: "d.example.com", Pool: node, Device: device}}},
				NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
				}}}},
			}
			if result := &claim.Status.Allocation.Devices.Results[0]; binds {
				result.BindingConditions, result.BindingFailureConditions = []string{attached}, []string{failed}
			}
		case "has":
			result := &claim.Status.Allocation.Devices.Results[0]
			claim.Status.Devices = append(claim.Status.Devices, resourcev1.AllocatedDeviceStatus{
				Driver: result.Driver, Pool: result.Pool, Device: result.Device, Conditions: []metav1.Condition{{Type: value, Status: metav1.ConditionTrue}},
			})
		case "for":
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: value, UID: types.UID("default/" + value)})
		case "version":
			claim.ResourceVersion = value
		case "deleting":
			claim.DeletionTimestamp = &metav1.Time{}
		default:
			panic("unknown word " + word)
		}
	}
	return claim
}
