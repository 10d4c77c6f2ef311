package devices

import (
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// In v1beta1 the fields of a request for one kind of device are the request's own, and
// those of a device are in "basic"; a slice has an empty nodeName or allNodes: false in
// place of none.

func claimFromV1beta1(in *resourcev1beta1.ResourceClaim, out *resourcev1.ResourceClaim) error {
	resource.CopyFields(in, out)
	requestsFromV1beta1(in.Spec.Devices.Requests, out.Spec.Devices.Requests)
	return nil
}

func claimToV1beta1(in *resourcev1.ResourceClaim, out *resourcev1beta1.ResourceClaim) error {
	resource.CopyFields(in, out)
	requestsToV1beta1(in.Spec.Devices.Requests, out.Spec.Devices.Requests)
	return nil
}

func templateFromV1beta1(in *resourcev1beta1.ResourceClaimTemplate, out *resourcev1.ResourceClaimTemplate) error {
	resource.CopyFields(in, out)
	requestsFromV1beta1(in.Spec.Spec.Devices.Requests, out.Spec.Spec.Devices.Requests)
	return nil
}

func templateToV1beta1(in *resourcev1.ResourceClaimTemplate, out *resourcev1beta1.ResourceClaimTemplate) error {
	resource.CopyFields(in, out)
	requestsToV1beta1(in.Spec.Spec.Devices.Requests, out.Spec.Spec.Devices.Requests)
	return nil
}

// requestsFromV1beta1 sets what the requests have in Exactly; the fields that both have
// are copied.
func requestsFromV1beta1(in []resourcev1beta1.DeviceRequest, out []resourcev1.DeviceRequest) {
	for i := range in {
		var exactly resourcev1.ExactDeviceRequest
		resource.CopyFields(&in[i], &exactly)
		if !apiequality.Semantic.DeepEqual(exactly, resourcev1.ExactDeviceRequest{}) {
			out[i].Exactly = &exactly
		}
	}
}

func requestsToV1beta1(in []resourcev1.DeviceRequest, out []resourcev1beta1.DeviceRequest) {
	for i := range in {
		if in[i].Exactly != nil {
			resource.CopyFields(in[i].Exactly, &out[i])
		}
	}
}

func sliceFromV1beta1(in *resourcev1beta1.ResourceSlice, out *resourcev1.ResourceSlice) error {
	resource.CopyFields(in, out)
	if in.Spec.NodeName != "" {
		out.Spec.NodeName = &in.Spec.NodeName
	}
	if in.Spec.AllNodes {
		out.Spec.AllNodes = &in.Spec.AllNodes
	}
	for i, d := range in.Spec.Devices {
		if d.Basic != nil {
			resource.CopyFields(d.Basic, &out.Spec.Devices[i])
		}
	}
	return nil
}

func sliceToV1beta1(in *resourcev1.ResourceSlice, out *resourcev1beta1.ResourceSlice) error {
	resource.CopyFields(in, out)
	out.Spec.NodeName, out.Spec.AllNodes = ptr.Deref(in.Spec.NodeName, ""), ptr.Deref(in.Spec.AllNodes, false)
	for i := range in.Spec.Devices {
		out.Spec.Devices[i].Basic = &resourcev1beta1.BasicDevice{}
		resource.CopyFields(&in.Spec.Devices[i], out.Spec.Devices[i].Basic)
	}
	return nil
}
