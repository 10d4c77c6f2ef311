package registry

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestAnInvalidObjectHasABoundedNumberOfErrors(t *testing.T) {
	for _, test := range []struct{ errs, listed int }{{0, 0}, {maxErrors, maxErrors}, {maxErrors + 1, maxErrors + 1}, {100_000, maxErrors + 1}} {
		errs := make(field.ErrorList, test.errs)
		for i := range errs {
			errs[i] = field.Invalid(field.NewPath("metadata", "labels"), "-l"+strconv.Itoa(i), "no")
		}
		got := bounded(errs)
		if len(got) != test.listed {
			t.Errorf("of %d errors %d are listed, want %d", test.errs, len(got), test.listed)
		}
		if test.errs > maxErrors {
			want := "metadata.labels: Invalid value: and " + strconv.Itoa(test.errs-maxErrors) + " more errors of this object"
			if text := got.ToAggregate().Error(); !strings.HasSuffix(text, want+"]") {
				t.Errorf("the list ends with %q, want %q", text[len(text)-80:], want)
			}
		}
	}
}
