package priority

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/admission/kindreader"
)

func class(name string, value int32, isDefault bool) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault}
}

// newPlugin returns a plugin whose informer has classes, and whose client has the
// class "fresh" as well.
func newPlugin(t *testing.T, classes ...*schedulingv1.PriorityClass) *plugin {
	t.Helper()
	client := fake.NewClientset(class("fresh", 7, false))
	factory := informers.NewSharedInformerFactory(client, 0)
	p := &plugin{kindreader.New(informer, admission.Create, admission.Update)}
	p.SetExternalKubeClientSet(client)
	p.SetExternalKubeInformerFactory(factory)
	p.SetReadyFunc(func() bool { return true })
	for _, c := range classes {
		if err := factory.Scheduling().V1().PriorityClasses().Informer().GetStore().Add(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	return p
}

func attributes(operation admission.Operation, obj, old runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{}, "ns", "name", schema.GroupVersionResource{}, "", operation, nil, false, nil)
}

func TestPodsGetThePriorityOfTheirClass(t *testing.T) {
	never := class("batch", -5, false)
	never.PreemptionPolicy = ptr.To(corev1.PreemptNever)
	for _, test := range []struct {
		name, class, want string
		classes           []*schedulingv1.PriorityClass
		priority          *int32
		policy            *corev1.PreemptionPolicy
		value             int32
		wantPolicy        corev1.PreemptionPolicy
		err               string
	}{
		{name: "no class", value: 0, wantPolicy: corev1.PreemptLowerPriority},
		{name: "a class", class: "batch", classes: []*schedulingv1.PriorityClass{never}, want: "batch", value: -5, wantPolicy: corev1.PreemptNever},
		{name: "the default class", classes: []*schedulingv1.PriorityClass{never, class("normal", 3, true)}, want: "normal", value: 3, wantPolicy: corev1.PreemptLowerPriority},
		{name: "the lowest of two default classes", classes: []*schedulingv1.PriorityClass{class("b", 4, true), class("normal", 3, true)}, want: "normal", value: 3, wantPolicy: corev1.PreemptLowerPriority},
		{name: "a class that the informer has not seen", class: "fresh", want: "fresh", value: 7, wantPolicy: corev1.PreemptLowerPriority},
		{name: "an unknown class", class: "unknown", err: "no PriorityClass with name unknown was found"},
		{name: "a name that no class can have", class: "a/b", err: "no PriorityClass with name a/b was found"},
		{name: "the priority of the class", class: "fresh", priority: ptr.To(int32(7)), want: "fresh", value: 7, wantPolicy: corev1.PreemptLowerPriority},
		{name: "another priority", class: "fresh", priority: ptr.To(int32(8)), err: "the integer value of priority (8) must not be provided"},
		{name: "a priority without a class", priority: ptr.To(int32(8)), err: "computed 0 from"},
		{name: "another policy", class: "fresh", policy: ptr.To(corev1.PreemptNever), err: "the string value of PreemptionPolicy (Never) must not be provided"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: test.class, Priority: test.priority, PreemptionPolicy: test.policy}}
			err := newPlugin(t, test.classes...).Admit(t.Context(), attributes(admission.Create, pod, nil), nil)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s := pod.Spec; s.PriorityClassName != test.want || *s.Priority != test.value || *s.PreemptionPolicy != test.wantPolicy {
				t.Errorf("got %q, %d, %s", s.PriorityClassName, *s.Priority, *s.PreemptionPolicy)
			}
		})
	}
}

func TestAnUpdateWithoutPriorityAndPolicyKeepsThem(t *testing.T) {
	pod, old := &corev1.Pod{}, &corev1.Pod{Spec: corev1.PodSpec{Priority: ptr.To(int32(3)), PreemptionPolicy: ptr.To(corev1.PreemptNever)}}
	if err := newPlugin(t).Admit(t.Context(), attributes(admission.Update, pod, old), nil); err != nil {
		t.Fatal(err)
	}
	if *pod.Spec.Priority != 3 || *pod.Spec.PreemptionPolicy != corev1.PreemptNever {
		t.Errorf("got %d, %s", *pod.Spec.Priority, *pod.Spec.PreemptionPolicy)
	}
}

func TestGroupsOfPodsGetThePriorityOfTheirClass(t *testing.T) {
	never := class("batch", 5, false)
	never.PreemptionPolicy = ptr.To(corev1.PreemptNever)
	p := newPlugin(t, never, class("normal", 3, true))
	group := &schedulingv1beta1.PodGroup{Spec: schedulingv1beta1.PodGroupSpec{PriorityClassName: "batch"}}
	if err := p.Admit(t.Context(), attributes(admission.Create, group, nil), nil); err != nil {
		t.Fatal(err)
	}
	if s := group.Spec; *s.Priority != 5 || *s.PreemptionPolicy != schedulingv1beta1.PreemptNever {
		t.Errorf("got %d, %s", *s.Priority, *s.PreemptionPolicy)
	}
	composite := &schedulingv1alpha3.CompositePodGroup{}
	if err := p.Admit(t.Context(), attributes(admission.Create, composite, nil), nil); err != nil {
		t.Fatal(err)
	}
	if s := composite.Spec; s.PriorityClassName != "normal" || *s.Priority != 3 || *s.PreemptionPolicy != schedulingv1alpha3.PreemptLowerPriority {
		t.Errorf("got %q, %d, %s", s.PriorityClassName, *s.Priority, *s.PreemptionPolicy)
	}
	for want, spec := range map[string]schedulingv1beta1.PodGroupSpec{
		"no PriorityClass with name unknown was found":                                {PriorityClassName: "unknown"},
		"priority set in the pod group (4) must match the priority computed (5)":      {PriorityClassName: "batch", Priority: ptr.To(int32(4))},
		"preemptionPolicy set in the pod group (Never) must match the one computed (": {PreemptionPolicy: ptr.To(schedulingv1beta1.PreemptNever)},
	} {
		err := p.Admit(t.Context(), attributes(admission.Create, &schedulingv1beta1.PodGroup{Spec: spec}, nil), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	group.Spec.Priority = nil
	if err := p.Admit(t.Context(), attributes(admission.Update, group, nil), nil); err != nil || group.Spec.Priority != nil {
		t.Errorf("an update sets the priority: %v", err)
	}
}

func TestThereIsOneDefaultClass(t *testing.T) {
	p := newPlugin(t, class("normal", 3, true))
	for _, test := range []struct {
		name      string
		operation admission.Operation
		class     *schedulingv1.PriorityClass
		refused   bool
	}{
		{"a second one", admission.Create, class("other", 1, true), true},
		{"one that becomes the second", admission.Update, class("other", 1, true), true},
		{"the first", admission.Update, class("normal", 3, true), false},
		{"another class", admission.Create, class("other", 1, false), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := p.Validate(t.Context(), attributes(test.operation, test.class, nil), nil)
			if refused := err != nil; refused != test.refused {
				t.Errorf("got %v", err)
			}
		})
	}
}
