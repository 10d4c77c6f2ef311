package convert

import (
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	jsonyaml "sigs.k8s.io/yaml"

	"svc.dev/svc/internal/manifest"
)

// behaviorAnnotation has the behavior in v2beta1, which has no field for it.
const behaviorAnnotation = "autoscaling.alpha.kubernetes.io/behavior"

// autoscaler brings metrics into the form that v2beta2 and v2 share: what is measured,
// and a target.
func autoscaler(e *edit) {
	behavior(e)
	for i, metric := range manifest.Items(e.obj, "spec", "metrics") {
		path := fmt.Sprintf("spec.metrics[%d]", i)
		for _, form := range []struct {
			source  string
			rewrite func(*yaml.Node)
		}{
			{"resource", resourceMetric}, {"containerResource", resourceMetric},
			{"pods", podsMetric}, {"object", objectMetric}, {"external", externalMetric},
		} {
			if of := manifest.Get(metric, form.source); of != nil && of.Kind == yaml.MappingNode {
				form.rewrite(of)
				e.changed(manifest.Key(metric, form.source), path+"."+form.source, "the metric and its target have the form of v2")
			}
		}
	}
	if status := manifest.Key(e.obj, "status"); status != nil {
		e.changed(status, "status", "removed: the controller writes it, and in another form")
		manifest.Delete(e.obj, "status")
	}
}

// behavior moves the behavior from the annotation, which v2beta2 and v2 ignore, to its field.
func behavior(e *edit) {
	annotations := manifest.Get(e.obj, "metadata", "annotations")
	at := manifest.Key(annotations, behaviorAnnotation)
	if at == nil {
		return
	}
	path := join("metadata.annotations", behaviorAnnotation)
	value, err := behaviorOf(manifest.Text(annotations, behaviorAnnotation))
	if err != nil {
		e.decide(at, path, "v2 has spec.behavior instead, and the annotation cannot be read: %v", err)
		return
	}
	manifest.Set(manifest.Ensure(e.obj, "spec"), "behavior", value)
	e.changed(at, path, "moved to spec.behavior")
	deleteAnnotation(e.obj, behaviorAnnotation)
}

// behaviorOf returns the field of an annotation, whose names Kubernetes writes in upper case.
func behaviorOf(annotation string) (*yaml.Node, error) {
	var b autoscalingv2.HorizontalPodAutoscalerBehavior
	if err := json.Unmarshal([]byte(annotation), &b); err != nil {
		return nil, err
	}
	text, err := jsonyaml.Marshal(b)
	if err != nil {
		return nil, err
	}
	documents, err := manifest.Parse("", string(text))
	if err != nil {
		return nil, err
	}
	return documents[0].Root, nil
}

func resourceMetric(of *yaml.Node) {
	target(of, "Utilization", "averageUtilization", "targetAverageUtilization")
	target(of, "AverageValue", "averageValue", "targetAverageValue")
}

func podsMetric(of *yaml.Node) {
	measured(of, "selector")
	target(of, "AverageValue", "averageValue", "targetAverageValue")
}

func objectMetric(of *yaml.Node) {
	manifest.Rename(of, "target", "describedObject")
	measured(of, "selector")
	target(of, "Value", "value", "targetValue")
	target(of, "AverageValue", "averageValue", "averageValue")
}

func externalMetric(of *yaml.Node) {
	measured(of, "metricSelector")
	target(of, "Value", "value", "targetValue")
	target(of, "AverageValue", "averageValue", "targetAverageValue")
}

// measured moves the name and the selector of a metric into one.
func measured(of *yaml.Node, selector string) {
	name, labels := manifest.Delete(of, "metricName"), manifest.Delete(of, selector)
	if name != nil || labels != nil {
		manifest.SetFirst(of, "metric", manifest.Map("name", name, "selector", labels))
	}
}

// target moves a value into the target. The last one decides the type, as an object or
// external metric with an average needs no value.
func target(of *yaml.Node, kind, key, from string) {
	value := manifest.Delete(of, from)
	if manifest.IsNull(value) {
		return
	}
	manifest.Set(of, "target", manifest.Map("type", manifest.String(kind), key, value))
}
