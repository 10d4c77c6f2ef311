package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
)

func validDaemonSet(t *testing.T) *appsv1.DaemonSet {
	ds := resourcetest.Read(t, daemonSets.Kind(), "testdata/daemonsets/minimal/input.yaml").(*appsv1.DaemonSet)
	defaultDaemonSet(ds)
	return ds
}

func TestValidateDaemonSet(t *testing.T) {
	rolling := func(unavailable, surge intstr.IntOrString) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) {
			ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &unavailable, MaxSurge: &surge}
		}
	}
	for _, test := range []struct {
		rule   string
		change func(ds *appsv1.DaemonSet)
		want   []string
	}{
		{"a defaulted daemon set is valid", func(*appsv1.DaemonSet) {}, nil},
		{"surge alone is allowed", rolling(intstr.FromInt32(0), intstr.FromString("10%")), nil},
		{"maxSurge and maxUnavailable are not both set", rolling(intstr.FromInt32(1), intstr.FromInt32(1)), []string{
			"spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
		}},
		{"maxSurge and maxUnavailable are not both zero", rolling(intstr.FromInt32(0), intstr.FromInt32(0)), []string{
			"spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
		}},
		{"the update strategy is known", func(ds *appsv1.DaemonSet) {
			ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: "Fast"}
		}, []string{
			`spec.updateStrategy: Unsupported value: {"type":"Fast"}: supported values: "RollingUpdate", "OnDelete"`,
		}},
		{"a selector selects the template", func(ds *appsv1.DaemonSet) { ds.Spec.Selector = nil }, []string{
			"spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
		}},
		{"the selector is not empty", func(ds *appsv1.DaemonSet) { ds.Spec.Selector = &metav1.LabelSelector{} }, []string{
			"spec.selector: Invalid value: {}: empty selector is invalid for daemonset",
		}},
		{"pods have no deadline", func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.ActiveDeadlineSeconds = ptr.To[int64](5) }, []string{
			"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported",
		}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			ds := validDaemonSet(t)
			test.change(ds)
			resourcetest.Errors(t, validateDaemonSet(ds), test.want...)
		})
	}
}

func TestDaemonSetCountsTemplates(t *testing.T) {
	generation := func(ds *appsv1.DaemonSet) string { return ds.Annotations["deprecated.daemonset.template.generation"] }
	created := validDaemonSet(t)
	daemonSets.PrepareCreate(t.Context(), nil, created)
	if got := generation(created); got != "1" {
		t.Errorf("a new daemon set has template generation %q, want 1", got)
	}
	changed := created.DeepCopy()
	changed.Annotations = nil
	changed.Spec.Template.Labels["new"] = "label"
	countTemplateChange(t.Context(), nil, changed, created)
	if got := generation(changed); got != "2" {
		t.Errorf("a changed template has generation %q, want 2", got)
	}
	same := changed.DeepCopy()
	same.Spec.MinReadySeconds = 5
	same.Annotations["deprecated.daemonset.template.generation"] = "7"
	countTemplateChange(t.Context(), nil, same, changed)
	if got := generation(same); got != "2" {
		t.Errorf("an unchanged template has generation %q, want 2", got)
	}
}

func TestAStatusKeepsTheTemplateGeneration(t *testing.T) {
	old := validDaemonSet(t)
	daemonSets.PrepareCreate(t.Context(), nil, old)
	for _, annotations := range []map[string]string{nil, {"deprecated.daemonset.template.generation": "7", "other": "kept"}} {
		written := old.DeepCopy()
		written.Annotations = annotations
		daemonSets.PrepareStatus(nil, written, old)
		if got := written.Annotations["deprecated.daemonset.template.generation"]; got != "1" {
			t.Errorf("after a status with annotations %v, the template generation is %q, want 1", annotations, got)
		}
	}
}

func TestDaemonSetSelectorIsImmutable(t *testing.T) {
	old := validDaemonSet(t)
	ds := old.DeepCopy()
	ds.Spec.Selector.MatchLabels["app"] = "db"
	resourcetest.Errors(t, daemonSets.ValidateUpdate(ds, old), `spec.selector: Invalid value: {"matchLabels":{"app":"db"}}: field is immutable`)
}

func TestValidateDaemonSetStatus(t *testing.T) {
	now := &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{NumberReady: -1, NumberUnavailable: -2}}
	old := &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{CollisionCount: ptr.To[int32](2)}}
	resourcetest.Errors(t, validateDaemonSetStatus(now, old),
		"status.numberReady: Invalid value: -1: must be greater than or equal to 0",
		"status.numberUnavailable: Invalid value: -2: must be greater than or equal to 0",
		"status.collisionCount: Invalid value: 0: cannot be decremented")
}
