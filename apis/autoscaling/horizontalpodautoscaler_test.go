package autoscaling

import (
	"os"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestGolden(t *testing.T) {
	resourcetest.Golden(t, Kinds())
}

func TestValidateHorizontalPodAutoscaler(t *testing.T) {
	base, err := os.ReadFile("testdata/horizontalpodautoscalers/minimal/input.yaml")
	if err != nil {
		t.Fatal(err)
	}
	metric := func(m string) string { return "{spec: {metrics: [" + m + "]}}" }
	const at = "spec.metrics[0]"
	resourcetest.Rules(t, horizontalPodAutoscalers, string(base), []resourcetest.Rule{
		{Name: "a defaulted autoscaler is valid"},
		{Name: "replicas have bounds", Change: "{spec: {minReplicas: -1, maxReplicas: null}}", Want: []string{
			"spec.minReplicas: Invalid value: -1: must be greater than or equal to 0",
			"spec.maxReplicas: Required value: must be set and greater than 0",
		}},
		{Name: "nothing runs only if something else is measured", Change: "{spec: {minReplicas: 0}}", Want: []string{
			"spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
		}},
		{Name: "the bounds are in order", Change: "{spec: {minReplicas: 11}}", Want: []string{
			"spec.maxReplicas: Invalid value: 10: must be greater than or equal to `minReplicas`",
		}},
		{Name: "the target is named", Change: "{spec: {scaleTargetRef: {kind: null, name: a/b, apiVersion: a/b/c}}}", Want: []string{
			"spec.scaleTargetRef.kind: Required value",
			"spec.scaleTargetRef.name: Invalid value: \"a/b\": may not contain '/'",
			`spec.scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c`,
		}},
		{Name: "the target has a group", Change: "{spec: {scaleTargetRef: {apiVersion: v1}}}", Want: []string{
			`spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group`,
		}},
		{Name: "replication controllers are of the core group", Change: "{spec: {scaleTargetRef: {apiVersion: v1, kind: ReplicationController}}}"},
		{Name: "a metric has a type", Change: metric("{}"), Want: []string{
			at + ".type: Required value: must specify a metric source type",
			at + `.type: Unsupported value: "": supported values: "ContainerResource", "External", "Object", "Pods", "Resource"`,
		}},
		{Name: "a metric's type is known", Change: metric("{type: Luck}"), Want: []string{
			at + `.type: Unsupported value: "Luck": supported values: "ContainerResource", "External", "Object", "Pods", "Resource"`,
		}},
		{Name: "a metric has the source that its type names", Change: metric("{type: Pods, resource: {name: cpu, target: {type: Utilization, averageUtilization: 5}}}"), Want: []string{
			at + ".pods: Required value: must populate information for the given metric source",
		}},
		{Name: "a metric has one source", Change: metric("{type: Pods, pods: {metric: {name: rps}, target: {type: AverageValue, averageValue: 1}}, resource: {name: cpu}}"), Want: []string{
			at + ".resource: Forbidden: must populate the given metric source only",
		}},
		{Name: "the version of a target is validated when it changes", Update: true, Was: "{spec: {scaleTargetRef: {apiVersion: v1}}}", Change: "{spec: {scaleTargetRef: {apiVersion: v1, name: other}}}"},
		{Name: "a resource has one target", Change: metric("{type: Resource, resource: {name: cpu, target: {type: Utilization}}}"), Want: []string{
			at + ".resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization",
		}},
		{Name: "a container's resource is one that containers ask for", Change: metric("{type: ContainerResource, containerResource: {name: luck, target: {type: Utilization, averageUtilization: 0}}}"), Want: []string{
			at + `.containerResource.name: Invalid value: "luck": must be a standard resource for containers`,
			at + ".containerResource.container: Required value: must specify a container",
			at + ".containerResource.target.averageUtilization: Invalid value: 0: must be greater than 0",
		}},
		{Name: "a metric of pods has a positive average", Change: metric("{type: Pods, pods: {metric: {name: rps}, target: {type: AverageValue, averageValue: 0}}}"), Want: []string{
			at + `.pods.target.averageValue: Invalid value: "0": must be positive`,
		}},
		{Name: "an external metric has one target", Change: metric("{type: External, external: {metric: {name: q}, target: {type: Mean, value: 1, averageValue: 2}}}"), Want: []string{
			at + `.external.target.type: Invalid value: "Mean": must be either Utilization, Value, or AverageValue`,
			at + ".external.target.value: Forbidden: may not set both a target value for metric and a per-pod target",
		}},
		{Name: "an object's metric names both", Change: metric("{type: Object, object: {metric: {name: ''}, describedObject: {kind: Service, name: ''}, target: {type: Value}}}"), Want: []string{
			at + ".object.describedObject.name: Required value",
			at + ".object.metric.name: Required value: must specify a metric name",
			at + ".object.target.averageValue: Required value: must set either a target value or averageValue",
		}},
		{Name: "behavior is bounded", Change: "{spec: {behavior: {scaleUp: {stabilizationWindowSeconds: 3601, selectPolicy: Any, tolerance: -1, policies: [{type: Nodes, value: 0, periodSeconds: 1801}]}, scaleDown: {policies: []}}}}", Want: []string{
			"spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
			`spec.behavior.scaleUp.selectPolicy: Unsupported value: "Any": supported values: "Disabled", "Max", "Min"`,
			`spec.behavior.scaleUp.tolerance: Invalid value: "-1": must be greater than or equal to 0`,
			`spec.behavior.scaleUp.policies[0].type: Unsupported value: "Nodes": supported values: "Percent", "Pods"`,
			"spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
			"spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
			"spec.behavior.scaleDown.policies: Required value: must specify at least one Policy",
		}},
		{Name: "replicas in the status are not negative", Status: true, Change: "{status: {currentReplicas: -1, desiredReplicas: -2}}", Want: []string{
			"status.currentReplicas: Invalid value: -1: must be greater than or equal to 0",
			"status.desiredReplicas: Invalid value: -2: must be greater than or equal to 0",
		}},
	})
}

func TestFormatMetrics(t *testing.T) {
	ten, two := ptr.To(resource.MustParse("10")), ptr.To(resource.MustParse("2"))
	object := func(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{Target: target}}
	}
	for _, test := range []struct {
		rule     string
		specs    []autoscalingv2.MetricSpec
		statuses []autoscalingv2.MetricStatus
		want     string
	}{
		{"there are none", nil, nil, "<none>"},
		{"what is not measured is unknown", []autoscalingv2.MetricSpec{cpuUtilization(80)}, nil, "cpu: <unknown>/80%"},
		{"use is in percent", []autoscalingv2.MetricSpec{cpuUtilization(80)}, []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{Name: "cpu", Current: autoscalingv2.MetricValueStatus{AverageUtilization: ptr.To[int32](20)}},
		}}, "cpu: 20%/80%"},
		{"a total is a value", []autoscalingv2.MetricSpec{object(autoscalingv2.MetricTarget{Value: ten})}, []autoscalingv2.MetricStatus{{
			Object: &autoscalingv2.ObjectMetricStatus{Current: autoscalingv2.MetricValueStatus{Value: two}},
		}}, "2/10"},
		{"an average says so", []autoscalingv2.MetricSpec{object(autoscalingv2.MetricTarget{AverageValue: ten})}, nil, "<unknown>/10 (avg)"},
		{"two are shown", []autoscalingv2.MetricSpec{cpuUtilization(1), cpuUtilization(2), cpuUtilization(3), cpuUtilization(4)}, nil, "cpu: <unknown>/1%, cpu: <unknown>/2% + 2 more..."},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if got := formatMetrics(test.specs, test.statuses, true); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
