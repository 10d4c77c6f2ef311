package rules

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/devices"
)

// sliceWithoutFractions validates a ResourceSlice with the policies of capacities in integers.
func sliceWithoutFractions(obj runtime.Object) field.ErrorList {
	return devices.ValidateSliceWithoutFractions(obj.(*resourcev1.ResourceSlice))
}
