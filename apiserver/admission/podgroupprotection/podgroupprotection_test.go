package podgroupprotection

import (
	"slices"
	"testing"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestNewPodGroupsAreProtected(t *testing.T) {
	with := func(finalizers ...string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: "x", Finalizers: finalizers}
	}
	for _, test := range []struct {
		rule        string
		object, old runtime.Object
		want        []string
	}{
		{rule: "a group", object: &schedulingv1beta1.PodGroup{ObjectMeta: with("other")}, want: []string{"other", finalizer}},
		{rule: "once", object: &schedulingv1beta1.PodGroup{ObjectMeta: with(finalizer)}, want: []string{finalizer}},
		{rule: "an update may remove the finalizer", object: &schedulingv1beta1.PodGroup{ObjectMeta: with()}, old: &schedulingv1beta1.PodGroup{ObjectMeta: with(finalizer)}},
		{rule: "another kind", object: &schedulingv1beta1.Workload{ObjectMeta: with()}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if err := (admissiontest.Server{}).Start(t, Register).Send(t, admissiontest.Request{Object: test.object, Old: test.old}); err != nil {
				t.Fatal(err)
			}
			if got := test.object.(metav1.Object).GetFinalizers(); !slices.Equal(got, test.want) {
				t.Errorf("finalizers %v, want %v", got, test.want)
			}
		})
	}
}
