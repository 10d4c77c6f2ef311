package apps

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
)

// validDeployment is a deployment with its defaults.
func validDeployment(t *testing.T) *appsv1.Deployment {
	d := resourcetest.Read(t, deployments.Kind(), "testdata/deployments/minimal/input.yaml").(*appsv1.Deployment)
	defaultDeployment(d)
	return d
}

func TestValidateDeployment(t *testing.T) {
	rolling := func(unavailable, surge intstr.IntOrString) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: &unavailable, MaxSurge: &surge}
		}
	}
	for _, test := range []struct {
		rule   string
		change func(d *appsv1.Deployment)
		want   []string
	}{
		{"a defaulted deployment is valid", func(*appsv1.Deployment) {}, nil},
		{"zero replicas are allowed", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) }, nil},
		{"counts are not negative", func(d *appsv1.Deployment) {
			d.Spec.Replicas, d.Spec.RevisionHistoryLimit, d.Spec.MinReadySeconds = ptr.To[int32](-1), ptr.To[int32](-2), -3
		}, []string{
			"spec.replicas: Invalid value: -1: must be greater than or equal to 0",
			"spec.revisionHistoryLimit: Invalid value: -2: must be greater than or equal to 0",
			"spec.minReadySeconds: Invalid value: -3: must be greater than or equal to 0",
		}},
		{"a selector is required", func(d *appsv1.Deployment) { d.Spec.Selector = nil }, []string{
			"spec.selector: Required value",
			"spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
		}},
		{"the selector is not empty", func(d *appsv1.Deployment) { d.Spec.Selector = &metav1.LabelSelector{} }, []string{
			"spec.selector: Invalid value: {}: empty selector is invalid for deployment",
		}},
		{"the selector selects the template", func(d *appsv1.Deployment) { d.Spec.Template.Labels = map[string]string{"app": "db"} }, []string{
			"spec.template.metadata.labels: Invalid value: {\"app\":\"db\"}: `selector` does not match template `labels`",
		}},
		{"pods restart always", func(d *appsv1.Deployment) { d.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever }, []string{
			`spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`,
		}},
		{"pods have no deadline", func(d *appsv1.Deployment) { d.Spec.Template.Spec.ActiveDeadlineSeconds = ptr.To[int64](5) }, []string{
			"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
		}},
		{"the template has containers", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = nil }, []string{
			"spec.template.spec.containers: Required value",
		}},
		{"an unknown strategy is refused", func(d *appsv1.Deployment) { d.Spec.Strategy = appsv1.DeploymentStrategy{Type: "Fast"} }, []string{
			`spec.strategy: Unsupported value: {"type":"Fast"}: supported values: "Recreate", "RollingUpdate"`,
		}},
		{"Recreate has no rolling update", func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }, []string{
			"spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
		}},
		{"maxSurge and maxUnavailable are not both zero", rolling(intstr.FromInt32(0), intstr.FromString("0%")), []string{
			"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
		}},
		{"maxUnavailable is at most 100%", rolling(intstr.FromString("101%"), intstr.FromString("200%")), []string{
			`spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%`,
		}},
		{"a string is a percentage", rolling(intstr.FromString("10"), intstr.FromInt32(1)), []string{
			`spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "10": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')`,
		}},
		{"a rollout's numbers are not negative", rolling(intstr.FromInt32(-1), intstr.FromInt32(-2)), []string{
			"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: -1: must be greater than or equal to 0",
			"spec.strategy.rollingUpdate.maxSurge: Invalid value: -2: must be greater than or equal to 0",
		}},
		{"the deadline of progress exceeds the time to be ready", func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 600 }, []string{
			"spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
		}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			d := validDeployment(t)
			test.change(d)
			resourcetest.Errors(t, validateDeployment(d), test.want...)
		})
	}
}

func TestDeploymentSelectorIsImmutable(t *testing.T) {
	old := validDeployment(t)
	d := old.DeepCopy()
	d.Spec.Selector.MatchLabels["app"] = "db"
	resourcetest.Errors(t, validateDeploymentUpdate(d, old), `spec.selector: Invalid value: {"matchLabels":{"app":"db"}}: field is immutable`)
	resourcetest.Errors(t, validateDeploymentUpdate(old.DeepCopy(), old))
}

func TestDeploymentWarnsOfItsNameOnce(t *testing.T) {
	d := validDeployment(t)
	d.Name = "web.front"
	if got := deployments.Warn(d, nil); len(got) != 1 || !strings.HasPrefix(got[0], "metadata.name: this is used in Pod names and hostnames") {
		t.Errorf("warnings on create are %q, want one of the name", got)
	}
	if got := deployments.Warn(d, d.DeepCopy()); got != nil {
		t.Errorf("warnings on an update without change are %q, want none", got)
	}
}

func TestDeploymentCountsAnnotationChanges(t *testing.T) {
	old := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 4}}
	same := old.DeepCopy()
	countAnnotationChange(t.Context(), nil, same, old)
	changed := old.DeepCopy()
	changed.Annotations = map[string]string{"note": "new"}
	countAnnotationChange(t.Context(), nil, changed, old)
	if same.Generation != 4 || changed.Generation != 5 {
		t.Errorf("generations are %d without and %d with a change of annotations, want 4 and 5", same.Generation, changed.Generation)
	}
}

func TestValidateDeploymentStatus(t *testing.T) {
	for _, test := range []struct {
		rule     string
		now, old appsv1.DeploymentStatus
		want     []string
	}{
		{"counters within each other are valid", appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 2, AvailableReplicas: 1}, appsv1.DeploymentStatus{}, nil},
		{"no part exceeds replicas", appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 2, ReadyReplicas: 3}, appsv1.DeploymentStatus{}, []string{
			"status.updatedReplicas: Invalid value: 2: cannot be greater than status.replicas",
			"status.readyReplicas: Invalid value: 3: cannot be greater than status.replicas",
		}},
		{"available replicas are ready", appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 1, AvailableReplicas: 2}, appsv1.DeploymentStatus{}, []string{
			"status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas",
		}},
		{"counters are not negative", appsv1.DeploymentStatus{UnavailableReplicas: -1, TerminatingReplicas: ptr.To[int32](-2), ObservedGeneration: -3}, appsv1.DeploymentStatus{}, []string{
			"status.unavailableReplicas: Invalid value: -1: must be greater than or equal to 0",
			"status.terminatingReplicas: Invalid value: -2: must be greater than or equal to 0",
			"status.observedGeneration: Invalid value: -3: must be greater than or equal to 0",
		}},
		{"collisions are not forgotten", appsv1.DeploymentStatus{}, appsv1.DeploymentStatus{CollisionCount: ptr.To[int32](2)}, []string{
			"status.collisionCount: Invalid value: 0: cannot be decremented",
		}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			resourcetest.Errors(t, validateDeploymentStatus(&appsv1.Deployment{Status: test.now}, &appsv1.Deployment{Status: test.old}), test.want...)
		})
	}
}
