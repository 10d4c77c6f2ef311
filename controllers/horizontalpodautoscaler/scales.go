package horizontalpodautoscaler

import (
	"context"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scales reads and writes the scale of targets.
type scales struct {
	client client.Client
}

// scale is the scale of a target.
type scale struct {
	target *unstructured.Unstructured
	object *unstructured.Unstructured

	replicas, status int32
	selector         string
}

// of returns the scale of the target of an autoscaler.
func (s scales) of(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler) (*scale, error) {
	ref := hpa.Spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("invalid API version in scale target reference: %w", err)
	}
	// Any served version of the kind has the same scale: as kube-controller-manager does, an
	// autoscaler that names a version which is no longer served works on.
	mappings, err := s.client.RESTMapper().RESTMappings(schema.GroupKind{Group: gv.Group, Kind: ref.Kind})
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, mapping := range mappings {
		found := &scale{target: &unstructured.Unstructured{}, object: &unstructured.Unstructured{}}
		found.target.SetGroupVersionKind(mapping.GroupVersionKind)
		found.target.SetNamespace(hpa.Namespace)
		found.target.SetName(ref.Name)
		if err := s.client.SubResource("scale").Get(ctx, found.target, found.object); err != nil {
			errs = append(errs, err)
			continue
		}
		return found, found.read()
	}
	return nil, errs[0]
}

// read reads the fields of the scale.
func (s *scale) read() error {
	replicas, _, err := unstructured.NestedInt64(s.object.Object, "spec", "replicas")
	if err != nil {
		return err
	}
	status, _, err := unstructured.NestedInt64(s.object.Object, "status", "replicas")
	if err != nil {
		return err
	}
	s.replicas, s.status = int32(replicas), int32(status)
	s.selector, _, err = unstructured.NestedString(s.object.Object, "status", "selector")
	return err
}

// pods returns the selector of the target's pods.
func (s *scale) pods() (labels.Selector, error) {
	if s.selector == "" {
		return nil, errNoSelector
	}
	return labels.Parse(s.selector)
}

// set writes the number of replicas, unless another client has written the scale since
// it was read.
func (s scales) set(ctx context.Context, of *scale, replicas int32) error {
	if err := unstructured.SetNestedField(of.object.Object, int64(replicas), "spec", "replicas"); err != nil {
		return err
	}
	return s.client.SubResource("scale").Update(ctx, of.target, client.WithSubResourceBody(of.object))
}
