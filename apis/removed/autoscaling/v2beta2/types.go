package v2beta2

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/removed/wire"
)

// SchemeGroupVersion is the version of the types.
var SchemeGroupVersion = schema.GroupVersion{Group: "autoscaling", Version: "v2beta2"}

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) {
	s.AddKnownTypes(SchemeGroupVersion, &HorizontalPodAutoscaler{}, &HorizontalPodAutoscalerList{})
}

// HorizontalPodAutoscaler is the configuration for a horizontal pod autoscaler, which
// sets the number of replicas of a resource by metrics.
type HorizontalPodAutoscaler struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// Specification of the behaviour of the autoscaler.
	// +optional
	Spec autoscalingv2.HorizontalPodAutoscalerSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
	// Current information about the autoscaler.
	// +optional
	Status autoscalingv2.HorizontalPodAutoscalerStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// HorizontalPodAutoscalerList is a list of autoscalers.
type HorizontalPodAutoscalerList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// The autoscalers.
	Items []HorizontalPodAutoscaler `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// DeepCopyObject implements runtime.Object.
func (h *HorizontalPodAutoscaler) DeepCopyObject() runtime.Object { return wire.Copy(h) }

// Marshal returns the object in protobuf.
func (h *HorizontalPodAutoscaler) Marshal() ([]byte, error) { return wire.Marshal(h) }

// Unmarshal sets the object from protobuf.
func (h *HorizontalPodAutoscaler) Unmarshal(data []byte) error { return wire.Unmarshal(data, h) }

// Reset empties the object.
func (h *HorizontalPodAutoscaler) Reset() { *h = HorizontalPodAutoscaler{} }

// DeepCopyObject implements runtime.Object.
func (l *HorizontalPodAutoscalerList) DeepCopyObject() runtime.Object { return wire.Copy(l) }

// Marshal returns the list in protobuf.
func (l *HorizontalPodAutoscalerList) Marshal() ([]byte, error) { return wire.Marshal(l) }

// Unmarshal sets the list from protobuf.
func (l *HorizontalPodAutoscalerList) Unmarshal(data []byte) error { return wire.Unmarshal(data, l) }

// Reset empties the list.
func (l *HorizontalPodAutoscalerList) Reset() { *l = HorizontalPodAutoscalerList{} }

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (HorizontalPodAutoscaler) OpenAPIModelName() string {
	return "io.k8s.api.autoscaling.v2beta2.HorizontalPodAutoscaler"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (HorizontalPodAutoscalerList) OpenAPIModelName() string {
	return "io.k8s.api.autoscaling.v2beta2.HorizontalPodAutoscalerList"
}

// APILifecycleIntroduced returns the release that introduced the type.
func (*HorizontalPodAutoscaler) APILifecycleIntroduced() (major, minor int) { return 1, 12 }

// APILifecycleDeprecated returns the release that deprecated the type.
func (*HorizontalPodAutoscaler) APILifecycleDeprecated() (major, minor int) { return 1, 23 }

// APILifecycleRemoved returns the release that removed the type.
func (*HorizontalPodAutoscaler) APILifecycleRemoved() (major, minor int) { return 1, 26 }

// APILifecycleReplacement returns what to use instead.
func (*HorizontalPodAutoscaler) APILifecycleReplacement() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}
}

// APILifecycleIntroduced returns the release that introduced the type.
func (*HorizontalPodAutoscalerList) APILifecycleIntroduced() (major, minor int) { return 1, 12 }

// APILifecycleDeprecated returns the release that deprecated the type.
func (*HorizontalPodAutoscalerList) APILifecycleDeprecated() (major, minor int) { return 1, 23 }

// APILifecycleRemoved returns the release that removed the type.
func (*HorizontalPodAutoscalerList) APILifecycleRemoved() (major, minor int) { return 1, 26 }

// APILifecycleReplacement returns what to use instead.
func (*HorizontalPodAutoscalerList) APILifecycleReplacement() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscalerList"}
}
