package established

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

var at = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestDefinitionsAreEstablishedForLongerThanTheDelay(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{Status: apiextensionsv1.CustomResourceDefinitionStatus{
		Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.NamesAccepted, LastTransitionTime: metav1.Time{Time: at}},
			{Type: apiextensionsv1.Established, LastTransitionTime: metav1.Time{Time: at}},
		},
	}}
	unchanged := func(obj any) (any, error) { return obj, nil }
	if _, err := Transform(unchanged)(crd); err != nil {
		t.Fatal(err)
	}
	if got := crd.Status.Conditions; !got[0].LastTransitionTime.Time.Equal(at) || at.Sub(got[1].LastTransitionTime.Time) != delay {
		t.Errorf("the conditions are %v", got)
	}
	for _, obj := range []any{&apiextensionsv1.CustomResourceDefinition{}, "another object"} {
		if got, err := Transform(unchanged)(obj); got != obj || err != nil {
			t.Errorf("%v becomes %v, %v", obj, got, err)
		}
	}
	failure := errors.New("the transform function before it fails")
	if _, err := Transform(func(any) (any, error) { return nil, failure })(crd); !errors.Is(err, failure) {
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
