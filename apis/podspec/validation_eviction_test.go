package podspec

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestRespondersOfEvictions(t *testing.T) {
	group := &corev1.PodSchedulingGroup{PodGroupName: ptr.To("a")}
	many := make([]corev1.EvictionResponder, 11)
	responder := func(name string, priority int32) corev1.EvictionResponder {
		return corev1.EvictionResponder{Name: name, Priority: &priority}
	}
	for rule, test := range map[string]struct {
		spec corev1.PodSpec
		want []string
	}{
		"a pod may have none":            {},
		"a group may have none":          {corev1.PodSpec{SchedulingGroup: group}, nil},
		"names and priorities are valid": {corev1.PodSpec{EvictionResponders: []corev1.EvictionResponder{responder("example.com/a", 1000), responder("example.com/b", 100_000)}}, nil},
		"names differ": {corev1.PodSpec{EvictionResponders: []corev1.EvictionResponder{responder("example.com/a", 1000), responder("example.com/a", 1000)}},
			[]string{`spec.evictionResponders[1]: Duplicate value: "example.com/a"`}},
		"names and priorities are required": {corev1.PodSpec{EvictionResponders: make([]corev1.EvictionResponder, 1)},
			[]string{`spec.evictionResponders[0].name: Required value`, `spec.evictionResponders[0].priority: Required value`}},
		"those of Kubernetes are reserved": {corev1.PodSpec{EvictionResponders: []corev1.EvictionResponder{responder("imperative-eviction.k8s.io/evictor", 999)}}, []string{
			`spec.evictionResponders[0].name: Invalid value: "imperative-eviction.k8s.io/evictor": domain names *.k8s.io, *.kubernetes.io are reserved`,
			`spec.evictionResponders[0].priority: Invalid value: 999: priorities 0-999 are reserved for responders with *.k8s.io suffix`}},
		"priorities are in their range": {corev1.PodSpec{EvictionResponders: []corev1.EvictionResponder{responder("example.com/a", -1), responder("example.com/b", 100_001)}}, []string{
			`spec.evictionResponders[0].priority: Invalid value: -1: must be greater than or equal to 0`,
			`spec.evictionResponders[1].priority: Invalid value: 100001: must be less than or equal to 100000`}},
		"there are ten at most": {corev1.PodSpec{EvictionResponders: many}, []string{`spec.evictionResponders: Too many: 11: must have at most 10 items`}},
		"a pod of a group has none": {corev1.PodSpec{SchedulingGroup: group, EvictionResponders: []corev1.EvictionResponder{responder("example.com/a", 1000)}},
			[]string{"spec.schedulingGroup: Forbidden: may not be set when evictionResponders is set"}},
	} {
		t.Run(strings.ReplaceAll(rule, " ", "_"), func(t *testing.T) {
			resourcetest.Errors(t, evictionRespondersAreValid(newPodSpec(&test.spec, &metav1.ObjectMeta{}, field.NewPath("spec"))), test.want...)
		})
	}
	template := &corev1.PodSpec{EvictionResponders: many}
	resourcetest.Errors(t, evictionRespondersAreValid(newPodSpec(template, nil, field.NewPath("spec"))))
}
