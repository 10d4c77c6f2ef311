package defaultstorageclass

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func class(name, annotation string, age time.Duration) runtime.Object {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{annotation: "true"}, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
	}}
}

func TestClaimsGetTheDefaultClass(t *testing.T) {
	for _, test := range []struct {
		rule    string
		classes []runtime.Object
		given   *string
		beta    string
		want    *string
	}{
		{rule: "without a default class a claim has none", classes: []runtime.Object{class("a", "other", 0)}},
		{rule: "the default class", classes: []runtime.Object{class("a", "other", 0), class("b", annotation, 0)}, want: ptr.To("b")},
		{rule: "by the beta annotation", classes: []runtime.Object{class("b", betaAnnotation, 0)}, want: ptr.To("b")},
		{rule: "the newest of several", classes: []runtime.Object{class("a", annotation, time.Hour), class("b", annotation, time.Minute)}, want: ptr.To("b")},
		{rule: "the first by name of equal ones", classes: []runtime.Object{class("b", annotation, 0), class("a", annotation, 0)}, want: ptr.To("a")},
		{rule: "a given class stays", classes: []runtime.Object{class("b", annotation, 0)}, given: ptr.To("x"), want: ptr.To("x")},
		{rule: "the empty class stays", classes: []runtime.Object{class("b", annotation, 0)}, given: ptr.To(""), want: ptr.To("")},
		{rule: "a class in the old annotation stays", classes: []runtime.Object{class("b", annotation, 0)}, beta: "x"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
			claim.Spec.StorageClassName = test.given
			if test.beta != "" {
				claim.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: test.beta}
			}
			if err := (admissiontest.Server{Objects: test.classes}).Start(t, Register).Send(t, admissiontest.Request{Object: claim}); err != nil {
				t.Fatal(err)
			}
			if got := claim.Spec.StorageClassName; !ptr.Equal(got, test.want) {
				t.Errorf("class %q, want %q", ptr.Deref(got, "nil"), ptr.Deref(test.want, "nil"))
			}
		})
	}
}
