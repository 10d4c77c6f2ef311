package bootstrap

import (
	"maps"
	"slices"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	defaults "k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/pki"
)

func TestFlowControlChanges(t *testing.T) {
	type level = flowcontrolv1.PriorityLevelConfiguration
	// edited is the object with more shares, as an operator leaves it.
	edited := func(obj *level, annotation string, generation int64) *level {
		obj = obj.DeepCopy()
		obj.Spec.Limited.NominalConcurrencyShares = ptr.To(int32(99))
		obj.Generation = generation
		if obj.Annotations = nil; annotation != "" {
			obj.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: annotation}
		}
		return obj
	}
	mandatory, suggested := defaults.MandatoryPriorityLevelConfigurationCatchAll, defaults.SuggestedPriorityLevelConfigurationSystem
	const wanted, kept = 1, 99
	for _, tc := range []struct {
		name string
		obj  *level
		// updated is whether the object is written; then it has the annotation and
		// these shares: the wanted ones or those kept.
		updated    bool
		annotation string
		shares     int
		removed    bool
	}{
		{name: "as wanted", obj: suggested},
		{name: "mandatory and edited", obj: edited(mandatory, "true", 2), updated: true, annotation: "true", shares: wanted},
		{name: "mandatory, edited, and opted out", obj: edited(mandatory, "false", 2), updated: true, annotation: "true", shares: wanted},
		{name: "suggested and edited", obj: edited(suggested, "true", 2), updated: true, annotation: "true", shares: wanted},
		{name: "suggested, edited, and opted out", obj: edited(suggested, "false", 2)},
		{name: "suggested, never touched, of a former release", obj: edited(suggested, "", 1), updated: true, annotation: "true", shares: wanted},
		{name: "suggested, edited, without annotation", obj: edited(suggested, "", 2), updated: true, annotation: "false", shares: kept},
		{name: "suggested, edited, with a broken annotation", obj: edited(suggested, "perhaps", 2), updated: true, annotation: "false", shares: kept},
		{name: "an operator's own", obj: named("mine", edited(suggested, "", 1))},
		{name: "an operator's own, opted out", obj: named("mine", edited(suggested, "false", 1))},
		{name: "of a former release", obj: named("old", edited(suggested, "true", 1)), removed: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := priorityLevels().changes([]*level{tc.obj})
			if removed := len(got.remove) == 1; removed != tc.removed {
				t.Errorf("removed = %v, want %v", removed, tc.removed)
			}
			if slices.ContainsFunc(got.create, func(l *level) bool { return l.Name == tc.obj.Name }) {
				t.Error("it is created although it exists")
			}
			if updated := len(got.update) == 1; updated != tc.updated {
				t.Fatalf("updated = %v, want %v", updated, tc.updated)
			}
			if !tc.updated {
				return
			}
			if value := got.update[0].Annotations[flowcontrolv1.AutoUpdateAnnotationKey]; value != tc.annotation {
				t.Errorf("annotation = %q, want %q", value, tc.annotation)
			}
			if restored := *got.update[0].Spec.Limited.NominalConcurrencyShares != 99; restored != (tc.shares == wanted) {
				t.Errorf("restored = %v", restored)
			}
		})
	}
}

func TestAnOperatorMayChangeTheLendingOfTheExemptLevel(t *testing.T) {
	exempt := defaults.MandatoryPriorityLevelConfigurationExempt.DeepCopy()
	exempt.Spec.Exempt.LendablePercent = ptr.To(int32(50))
	if got := priorityLevels().changes([]*flowcontrolv1.PriorityLevelConfiguration{exempt}); len(got.update) != 0 {
		t.Error("the operator's lending was reverted")
	}
}

func TestFlowControlIsWrittenAndRemoved(t *testing.T) {
	old := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "old", Annotations: map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}}}
	client := fake.NewClientset(old)
	if err := EnsureFlowControl(t.Context(), client.FlowcontrolV1()); err != nil {
		t.Fatal(err)
	}
	schemas, err := client.FlowcontrolV1().FlowSchemas().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := len(defaults.MandatoryFlowSchemas) + len(defaults.SuggestedFlowSchemas) + 2; len(schemas.Items) != want { // those of svc's controllers
		t.Errorf("%d flow schemas, want %d", len(schemas.Items), want)
	}
	levels, err := client.FlowcontrolV1().PriorityLevelConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := len(defaults.MandatoryPriorityLevelConfigurations) + len(defaults.SuggestedPriorityLevelConfigurations); len(levels.Items) != want {
		t.Errorf("%d priority levels, want %d", len(levels.Items), want)
	}
}

func TestControllersHaveThePriorityOfKubeControllerManager(t *testing.T) {
	for user, want := range map[string]map[string]string{
		pki.ControllersClient: {"svc-controller-manager": "workload-high", "svc-leader-election": "leader-election"},
		pki.UpClient:          {"svc-controller-manager": "workload-high"},
	} {
		level := map[string]string{}
		for _, schema := range flowSchemas().suggested {
			for _, subject := range schema.Spec.Rules[0].Subjects {
				if subject.User != nil && subject.User.Name == user {
					level[schema.Name] = schema.Spec.PriorityLevelConfiguration.Name
				}
			}
		}
		if !maps.Equal(level, want) {
			t.Errorf("%s: got %v, want %v", user, level, want)
		}
	}
}

func named(name string, obj *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfiguration {
	obj.Name = name
	return obj
}
