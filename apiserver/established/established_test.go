package established

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	clocktesting "k8s.io/utils/clock/testing"
)

var at = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestDefinitionsAreEstablishedForLongerThanTheDelayOnTheOnlyServer(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(at.Add(delay - 1))
	unchanged := func(obj any) (any, error) { return obj, nil }
	yes, no := func() bool { return true }, func() bool { return false }
	for rule, test := range map[string]struct {
		status apiextensionsv1.ConditionStatus
		since  time.Time
		alone  func() bool
		want   time.Time
	}{
		"if it is the only one":            {apiextensionsv1.ConditionTrue, at, yes, at.Add(-delay)},
		"not if there are others":          {apiextensionsv1.ConditionTrue, at, no, at},
		"also before they are established": {apiextensionsv1.ConditionFalse, at, yes, at.Add(-delay)},
		"without a question after a while": {apiextensionsv1.ConditionTrue, at.Add(-1), func() bool { t.Error("asked"); return true }, at.Add(-1)},
	} {
		crd := &apiextensionsv1.CustomResourceDefinition{Status: apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: metav1.Time{Time: at}},
				{Type: apiextensionsv1.Established, Status: test.status, LastTransitionTime: metav1.Time{Time: test.since}},
			},
		}}
		if _, err := Transform(unchanged, test.alone, clock)(crd); err != nil {
			t.Fatal(err)
		}
		if got := crd.Status.Conditions; !got[0].LastTransitionTime.Time.Equal(at) || !got[1].LastTransitionTime.Time.Equal(test.want) {
			t.Errorf("%s: the conditions are %v", rule, got)
		}
	}
	for _, obj := range []any{&apiextensionsv1.CustomResourceDefinition{}, "another object"} {
		if got, err := Transform(unchanged, yes, clock)(obj); got != obj || err != nil {
			t.Errorf("%v becomes %v, %v", obj, got, err)
		}
	}
	failure := errors.New("the transform function before it fails")
	failing := func(any) (any, error) { return nil, failure }
	if _, err := Transform(failing, yes, clock)(&apiextensionsv1.CustomResourceDefinition{}); !errors.Is(err, failure) {
		t.Errorf("the error is %v", err)
	}
}

func TestUpdatesKeepTheTimeAtWhichADefinitionWasEstablished(t *testing.T) {
	definition := func(status apiextensions.ConditionStatus, since time.Time) *apiextensions.CustomResourceDefinition {
		return &apiextensions.CustomResourceDefinition{Status: apiextensions.CustomResourceDefinitionStatus{
			Conditions: []apiextensions.CustomResourceDefinitionCondition{{Type: apiextensions.Established, Status: status, LastTransitionTime: metav1.Time{Time: since}}},
		}}
	}
	none := &apiextensions.CustomResourceDefinition{}
	for rule, test := range map[string]struct {
		old, changed *apiextensions.CustomResourceDefinition
		want         time.Time
	}{
		"of the same status":  {definition(apiextensions.ConditionTrue, at), definition(apiextensions.ConditionTrue, at.Add(-delay)), at},
		"not of another one":  {definition(apiextensions.ConditionFalse, at), definition(apiextensions.ConditionTrue, at.Add(time.Hour)), at.Add(time.Hour)},
		"not of the first":    {none, definition(apiextensions.ConditionTrue, at.Add(time.Hour)), at.Add(time.Hour)},
		"not of what is gone": {definition(apiextensions.ConditionTrue, at), none, time.Time{}},
	} {
		chain := Keep(admission.NewChainHandler())
		a := admission.NewAttributesRecord(test.changed, test.old, apiextensions.Kind("CustomResourceDefinition").WithVersion("v1"), "", "widgets.example.com",
			apiextensions.Resource("customresourcedefinitions").WithVersion("v1"), "status", admission.Update, nil, false, nil)
		if err := chain.(admission.MutationInterface).Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		var got time.Time
		if condition := apiextensions.FindCRDCondition(test.changed, apiextensions.Established); condition != nil {
			got = condition.LastTransitionTime.Time
		}
		if !got.Equal(test.want) {
			t.Errorf("%s: established at %s, want %s", rule, got, test.want)
		}
	}
}
