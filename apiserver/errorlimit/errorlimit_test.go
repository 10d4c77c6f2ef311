package errorlimit

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestAnInvalidObjectHasABoundedNumberOfErrors(t *testing.T) {
	for _, test := range []struct{ errs, unlisted, listed int }{
		{0, 0, 0}, {Max, 0, Max}, {Max + 1, 0, Max + 1}, {100_000, 0, Max + 1}, {Max + 1, 20_000, Max + 1},
	} {
		errs := make(field.ErrorList, test.errs)
		for i := range errs {
			errs[i] = field.Invalid(field.NewPath("metadata", "labels"), "-l"+strconv.Itoa(i), "no")
		}
		got := First(errs, test.unlisted)
		if len(got) != test.listed {
			t.Errorf("of %d errors %d are listed, want %d", test.errs, len(got), test.listed)
		}
		if test.errs > Max {
			want := "metadata.labels: Invalid value: and " + strconv.Itoa(test.errs+test.unlisted-Max) + " more errors of this object"
			if text := got.ToAggregate().Error(); !strings.HasSuffix(text, want+"]") {
				t.Errorf("the list ends with %q, want %q", text[len(text)-80:], want)
			}
		}
	}
}
