package v2beta1

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/removed/wire"
)

// SchemeGroupVersion is the version of the types.
var SchemeGroupVersion = schema.GroupVersion{Group: "autoscaling", Version: "v2beta1"}

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
	Spec HorizontalPodAutoscalerSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
	// Current information about the autoscaler.
	// +optional
	Status HorizontalPodAutoscalerStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// HorizontalPodAutoscalerSpec is the desired behaviour of an autoscaler.
type HorizontalPodAutoscalerSpec struct {
	// The resource to scale, which has the subresource scale.
	ScaleTargetRef autoscalingv1.CrossVersionObjectReference `json:"scaleTargetRef" protobuf:"bytes,1,opt,name=scaleTargetRef"`
	// The least number of replicas; defaults to 1.
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty" protobuf:"varint,2,opt,name=minReplicas"`
	// The greatest number of replicas, not less than minReplicas.
	MaxReplicas int32 `json:"maxReplicas" protobuf:"varint,3,opt,name=maxReplicas"`
	// The metrics by which the number of replicas is calculated: the greatest number
	// of all of them is used. Defaults to 80% of the requested CPU.
	// +optional
	Metrics []autoscalingv1.MetricSpec `json:"metrics,omitempty" protobuf:"bytes,4,rep,name=metrics"`
}

// HorizontalPodAutoscalerStatus is the current status of an autoscaler.
type HorizontalPodAutoscalerStatus struct {
	// The generation that the autoscaler has observed.
	// +optional
	ObservedGeneration *int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`
	// The time of the last change of the number of replicas.
	// +optional
	LastScaleTime *metav1.Time `json:"lastScaleTime,omitempty" protobuf:"bytes,2,opt,name=lastScaleTime"`
	// The current number of replicas.
	CurrentReplicas int32 `json:"currentReplicas" protobuf:"varint,3,opt,name=currentReplicas"`
	// The desired number of replicas.
	DesiredReplicas int32 `json:"desiredReplicas" protobuf:"varint,4,opt,name=desiredReplicas"`
	// The last read state of the metrics.
	// +optional
	CurrentMetrics []autoscalingv1.MetricStatus `json:"currentMetrics" protobuf:"bytes,5,rep,name=currentMetrics"`
	// The conditions that the autoscaler needs for its work.
	// +optional
	Conditions []autoscalingv1.HorizontalPodAutoscalerCondition `json:"conditions" protobuf:"bytes,6,rep,name=conditions"`
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
	return "io.k8s.api.autoscaling.v2beta1.HorizontalPodAutoscaler"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (HorizontalPodAutoscalerSpec) OpenAPIModelName() string {
	return "io.k8s.api.autoscaling.v2beta1.HorizontalPodAutoscalerSpec"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (HorizontalPodAutoscalerStatus) OpenAPIModelName() string {
	return "io.k8s.api.autoscaling.v2beta1.HorizontalPodAutoscalerStatus"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (HorizontalPodAutoscalerList) OpenAPIModelName() string {
	return "io.k8s.api.autoscaling.v2beta1.HorizontalPodAutoscalerList"
}

// APILifecycleIntroduced returns the release that introduced the type.
func (*HorizontalPodAutoscaler) APILifecycleIntroduced() (major, minor int) { return 1, 8 }

// APILifecycleDeprecated returns the release that deprecated the type.
func (*HorizontalPodAutoscaler) APILifecycleDeprecated() (major, minor int) { return 1, 22 }

// APILifecycleRemoved returns the release that removed the type.
func (*HorizontalPodAutoscaler) APILifecycleRemoved() (major, minor int) { return 1, 25 }

// APILifecycleReplacement returns what to use instead.
func (*HorizontalPodAutoscaler) APILifecycleReplacement() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}
}

// APILifecycleIntroduced returns the release that introduced the type.
func (*HorizontalPodAutoscalerList) APILifecycleIntroduced() (major, minor int) { return 1, 8 }

// APILifecycleDeprecated returns the release that deprecated the type.
func (*HorizontalPodAutoscalerList) APILifecycleDeprecated() (major, minor int) { return 1, 22 }

// APILifecycleRemoved returns the release that removed the type.
func (*HorizontalPodAutoscalerList) APILifecycleRemoved() (major, minor int) { return 1, 25 }

// APILifecycleReplacement returns what to use instead.
func (*HorizontalPodAutoscalerList) APILifecycleReplacement() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscalerList"}
}
