package defaultingressclass

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestIngressesGetTheDefaultClass(t *testing.T) {
	class := func(name, isDefault string) runtime.Object {
		return &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault}}}
	}
	for _, test := range []struct {
		rule        string
		classes     []runtime.Object
		given       *string
		annotations map[string]string
		want        *string
	}{
		{rule: "without a default class an ingress has none", classes: []runtime.Object{class("a", "false")}},
		{rule: "the default class", classes: []runtime.Object{class("a", "false"), class("b", "true")}, want: ptr.To("b")},
		{rule: "a given class stays", classes: []runtime.Object{class("b", "true")}, given: ptr.To("x"), want: ptr.To("x")},
		{rule: "a class in the old annotation stays", classes: []runtime.Object{class("b", "true")}, annotations: map[string]string{"kubernetes.io/ingress.class": "x"}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			ingress := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "i", Annotations: test.annotations}}
			ingress.Spec.IngressClassName = test.given
			if err := (admissiontest.Server{Objects: test.classes}).Start(t, Register).Send(t, admissiontest.Request{Object: ingress}); err != nil {
				t.Fatal(err)
			}
			if got := ingress.Spec.IngressClassName; !ptr.Equal(got, test.want) {
				t.Errorf("class %q, want %q", ptr.Deref(got, "nil"), ptr.Deref(test.want, "nil"))
			}
		})
	}
}
