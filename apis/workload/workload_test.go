package workload

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func TestAmount(t *testing.T) {
	for _, test := range []struct {
		rule  string
		value *intstr.IntOrString
		want  int
	}{
		{"nothing is zero", nil, 0},
		{"a number is itself", ptr.To(intstr.FromInt32(7)), 7},
		{"a percentage is its number", ptr.To(intstr.FromString("7%")), 7},
		{"what is neither is zero", ptr.To(intstr.FromString("seven")), 0},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if got := Amount(test.value); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestAPercentageOfTooManyDigitsIsMoreThanAll(t *testing.T) {
	if errs := ValidateAtMost100Percent(ptr.To(intstr.FromString("99999999999999999999%")), nil); len(errs) == 0 {
		t.Error("it is accepted")
	}
}
